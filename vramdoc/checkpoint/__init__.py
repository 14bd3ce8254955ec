"""What a model file says about itself: headers, indexes, config.json, the decoder's shape. Reads no weights."""
