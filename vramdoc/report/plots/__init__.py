"""Pictures of a report, PNG and SVG, light and dark. The one door to matplotlib; nothing here measures.

Colours are Okabe and Ito's, which colour-blind people tell apart; line styles and hatches repeat what they say, so that a
figure printed in grey reads as well.
"""

from vramdoc.report.plots.pictures import plot_capacity, plot_comparison, plot_report

__all__ = ["plot_capacity", "plot_comparison", "plot_report"]
