/* The tree: what is left when events, frames and stacks are taken out, as words that Python turns into containers. */
#pragma once
#include "records.h"

/* ---- the tree: what is left when events, frames and stacks are taken out ------------------------------------------------------ */
enum { T_NONE, T_FALSE, T_TRUE, T_INT, T_REAL, T_TEXT, T_OPAQUE, T_LIST, T_TUPLE, T_DICT, T_EVENTS, T_STACK, T_BIG };

static bool emit(Scanner *s, int64_t word) {
  APPEND(s, tree, word);
  return true;
}
static bool emit_value(Scanner *s, Value value, int depth);

/* A list of events: its length, how many of its items are events, then runs of consecutive rows. */
static bool emit_events(Scanner *s, const Node *list) {
  TRY(emit(s, T_EVENTS) && emit(s, list->length));
  uint64_t runs_at = s->tree_count, runs = 0;
  int64_t next_row = -1;
  TRY(emit(s, 0));
  for (uint32_t i = 0; i < list->length; i++) {
    const Node *item = node_of(s, list->items[i]);
    if (!item || item->kind != EVENT) continue;
    int64_t row = (int64_t)item->code;
    if (row == next_row) s->tree[s->tree_count - 1]++;
    else {
      TRY(emit(s, row) && emit(s, 1));
      runs++;
    }
    next_row = row + 1;
  }
  s->tree[runs_at] = (int64_t)runs;
  return true;
}
static bool emit_node(Scanner *s, Node *node, int depth) {
  if (node->kind == STACK) return emit(s, T_STACK) && emit(s, (int64_t)node->code);
  if (node->kind == EVENT || depth > DEEPEST_TREE) return emit(s, T_OPAQUE);
  if (node->kind == FRAME) { /* outside a stack: give its parts back */
    struct Frame f = s->frames[node->code];
    return emit(s, T_DICT) && emit(s, 3) && emit(s, T_TEXT) && emit(s, s->k_filename) && emit(s, T_TEXT) && emit(s, f.filename) &&
           emit(s, T_TEXT) && emit(s, s->k_line) && emit(s, T_INT) && emit(s, f.line) && emit(s, T_TEXT) && emit(s, s->k_name) &&
           emit(s, T_TEXT) && emit(s, f.name);
  }
  /* A container reached twice is written twice; a genuine file shares frames and texts only. */
  s->visited += node->length;
  if (s->visited > FREE_ITEMS + s->fed) FAIL(s, "its shared references unfold beyond its own size");
  if (node->kind == LIST)
    for (uint32_t i = 0; i < node->length; i++) {
      const Node *item = node_of(s, node->items[i]);
      if (item && item->kind == EVENT) return emit_events(s, node);
    }
  uint32_t length = node->length, kind = node->kind;
  TRY(emit(s, kind == DICT ? T_DICT : kind == LIST ? T_LIST : T_TUPLE));
  TRY(emit(s, kind == DICT ? length / 2 : length));
  bool is_frames = false;
  for (uint32_t i = 0; i < length; i++) {
    int32_t code;
    if (is_frames && TAG(node->items[i]) == NODE) {
      TRY(stack_code(s, node->items[i], &code));
      TRY(emit(s, T_STACK) && emit(s, code));
    } else TRY(emit_value(s, node->items[i], depth + 1));
    if (node->kind != kind) FAIL(s, "a list of frames contains itself");
    is_frames = kind == DICT && i % 2 == 0 && node->items[i] == MAKE(TEXT, s->k_frames);
  }
  return true;
}
static bool emit_value(Scanner *s, Value value, int depth) {
  switch (TAG(value)) {
    case NONE: return emit(s, T_NONE);
    case BOOL: return emit(s, PAYLOAD(value) ? T_TRUE : T_FALSE);
    case INT: return emit(s, T_INT) && emit(s, PAYLOAD(value));
    case WIDE: return PAYLOAD(value) < 0 ? emit(s, T_BIG) : emit(s, T_INT) && emit(s, s->wide[PAYLOAD(value)]);
    case REAL: {
      int64_t bits;
      memcpy(&bits, &s->reals[PAYLOAD(value)], 8);
      return emit(s, T_REAL) && emit(s, bits);
    }
    case TEXT: return emit(s, T_TEXT) && emit(s, PAYLOAD(value));
    case PAIR:
      return emit(s, T_TUPLE) && emit(s, 2) && emit(s, T_INT) && emit(s, PAYLOAD(value) >> 30) && emit(s, T_INT) &&
             emit(s, PAYLOAD(value) & ((1 << 30) - 1));
    case NODE: return emit_node(s, node_of(s, value), depth);
    default: return emit(s, T_OPAQUE);
  }
}
