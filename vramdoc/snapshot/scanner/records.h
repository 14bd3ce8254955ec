/* Frames, stacks and events: the dictionaries that are recognised and become columns. It knows no opcode. */
#pragma once
#include "containers.h"

/* ---- frames and stacks -------------------------------------------------------------------------------------------------- */
static bool frame_equal(const Scanner *s, uint32_t number, const void *wanted) {
  const struct Frame *a = &s->frames[number], *b = wanted;
  return a->filename == b->filename && a->name == b->name && a->line == b->line;
}
static uint64_t hash_frame(const struct Frame *f) { return mix(mix(mix(1, f->filename), f->name), (uint64_t)f->line); }
static uint64_t frame_hash(const Scanner *s, uint32_t number) { return hash_frame(&s->frames[number]); }

static bool integer_of(const Scanner *s, Value value, int64_t *number) {
  if (TAG(value) == INT || TAG(value) == BOOL) *number = PAYLOAD(value);
  else if (TAG(value) == WIDE && PAYLOAD(value) >= 0) *number = s->wide[PAYLOAD(value)];
  else return false;
  return true;
}
static bool intern_frame(Scanner *s, const Value *pairs, uint64_t count, uint32_t *number) {
  struct Frame frame = {s->k_unknown, s->k_unknown, 0};
  for (uint64_t i = 0; i + 1 < count; i += 2) {
    if (TAG(pairs[i]) != TEXT) continue;
    uint32_t key = (uint32_t)PAYLOAD(pairs[i]);
    bool is_text = TAG(pairs[i + 1]) == TEXT;
    if (key == s->k_filename) frame.filename = is_text ? (uint32_t)PAYLOAD(pairs[i + 1]) : s->k_unknown;
    else if (key == s->k_name) frame.name = is_text ? (uint32_t)PAYLOAD(pairs[i + 1]) : s->k_unknown;
    else if (key == s->k_line && !integer_of(s, pairs[i + 1], &frame.line)) frame.line = 0;
  }
  uint32_t *slot;
  TRY(find_slot(s, &s->frame_index, hash_frame(&frame), frame_equal, frame_hash, &frame, &slot));
  if (!*slot) {
    TRY(grow(s, (void **)&s->frames, &s->frames_capacity, s->frames_count + 1, sizeof *s->frames));
    s->frames[s->frames_count++] = frame;
    *slot = (uint32_t)s->frames_count;
    s->frame_index.used++;
  }
  *number = *slot - 1;
  return true;
}

struct Indices { const int32_t *start; uint64_t length; };
static bool stack_equal(const Scanner *s, uint32_t number, const void *wanted) {
  const struct Indices *w = wanted;
  int64_t start = s->stack_ends[number], end = s->stack_ends[number + 1];
  return (uint64_t)(end - start) == w->length && !memcmp(s->frame_indices + start, w->start, w->length * sizeof *w->start);
}
static uint64_t stack_hash(const Scanner *s, uint32_t number) {
  int64_t start = s->stack_ends[number], end = s->stack_ends[number + 1];
  return hash_bytes(s->frame_indices + start, (size_t)(end - start) * sizeof *s->frame_indices);
}
/* The code of the stack that a list or tuple of frames is; -1 for anything else and for an empty one. */
static bool stack_code(Scanner *s, Value value, int32_t *code) {
  *code = -1;
  Node *node = node_of(s, value);
  if (!node) return true;
  if (node->kind == STACK) *code = (int32_t)node->code;
  if ((node->kind != LIST && node->kind != TUPLE) || !node->length) return true;
  uint64_t length = node->length < DEEPEST_STACK ? node->length : DEEPEST_STACK;
  TRY(RESERVE(s, frame_indices, length));
  int32_t *indices = s->frame_indices + s->frame_indices_count; /* in place: kept when the stack is new */
  for (uint64_t i = 0; i < length; i++) {
    Node *frame = node_of(s, node->items[i]);
    uint32_t number;
    if (frame && frame->kind == FRAME) number = (uint32_t)frame->code;
    else if (frame && frame->kind == DICT) TRY(intern_frame(s, frame->items, frame->length, &number));
    else TRY(intern_frame(s, NULL, 0, &number));
    indices[i] = (int32_t)number;
  }
  struct Indices wanted = {indices, length};
  uint32_t *slot;
  TRY(find_slot(s, &s->stack_index, hash_bytes(indices, length * sizeof *indices), stack_equal, stack_hash, &wanted, &slot));
  if (!*slot) {
    if (s->stack_ends_count > INT32_MAX - 1) FAIL(s, "it holds too many stacks");
    s->frame_indices_count += length;
    APPEND(s, stack_ends, (int64_t)s->frame_indices_count);
    *slot = (uint32_t)s->stack_ends_count - 1;
    s->stack_index.used++;
  }
  *code = (int32_t)(*slot - 1);
  settle(node, STACK, (uint64_t)*code);
  return true;
}

/* ---- events --------------------------------------------------------------------------------------------------------------- */
static bool reserve_rows(Scanner *s) {
  if (s->rows < s->rows_capacity) return true;
  uint64_t capacity = s->rows_capacity + s->rows_capacity / 2 + 1024;
#define WIDEN(column)                                                   \
  do {                                                                  \
    void *moved = realloc(s->column, capacity * sizeof *s->column);     \
    if (!moved) FAIL(s, "there is not enough memory for it");           \
    s->column = moved;                                                  \
  } while (0)
  WIDEN(action); WIDEN(pool); WIDEN(trace_stack); WIDEN(address); WIDEN(size); WIDEN(stream); WIDEN(time_us);
#undef WIDEN
  s->rows_capacity = capacity;
  return true;
}
static bool action_code(Scanner *s, Value value, uint8_t *code) {
  uint32_t text = TAG(value) == TEXT ? (uint32_t)PAYLOAD(value) : s->k_unknown + 1; /* "?", interned behind "??" */
  for (uint32_t i = 0; i < s->actions; i++)
    if (s->action_texts[i] == text) {
      *code = (uint8_t)i;
      return true;
    }
  if (s->actions > MOST_CODES) FAIL(s, "the trace names more than %d different actions", MOST_CODES);
  *code = (uint8_t)s->actions;
  s->action_texts[s->actions++] = text;
  return true;
}
static bool pool_code(Scanner *s, Value value, int16_t *code) {
  int64_t first = -1, second = -1;
  *code = -1;
  Node *node = node_of(s, value);
  if (TAG(value) == PAIR) {
    first = PAYLOAD(value) >> 30;
    second = PAYLOAD(value) & ((1 << 30) - 1);
  } else if (node && (node->kind == LIST || node->kind == TUPLE) && node->length == 2) {
    if (!integer_of(s, node->items[0], &first) || !integer_of(s, node->items[1], &second)) return true;
  }
  if (first < 0 || second < 0) return true;
  uint32_t i = 0;
  while (i < s->pool_count && (s->pools[i][0] != first || s->pools[i][1] != second)) i++;
  if (i == s->pool_count) {
    if (s->pool_count > MOST_CODES) FAIL(s, "the trace names more than %d different pools", MOST_CODES);
    s->pools[s->pool_count][0] = first;
    s->pools[s->pool_count++][1] = second;
  }
  *code = (int16_t)i;
  return true;
}
/* An event need not have every key (MARK stands for none); what it has must be an integer. */
static void column(Scanner *s, Value value, int64_t fallback, int64_t *entry) {
  if (TAG(value) == MARK) *entry = fallback;
  else if (!integer_of(s, value, entry)) {
    *entry = fallback;
    s->foreign++;
  }
}
static bool add_event(Scanner *s, const Value *pairs, uint64_t count, uint64_t *row) {
  TRY(reserve_rows(s));
  uint64_t r = *row = s->rows++;
  /* A key that is repeated counts with its last value, as in a dictionary. */
  const Value absent = MAKE(MARK, 0);
  Value action = absent, address = absent, device_free = absent, size = absent, stream = absent, time_us = absent;
  Value pool = absent, frames = absent;
  for (uint64_t i = 0; i + 1 < count; i += 2) {
    if (TAG(pairs[i]) != TEXT) continue;
    uint32_t key = (uint32_t)PAYLOAD(pairs[i]);
    Value value = pairs[i + 1];
    if (key == s->k_action) action = value;
    else if (key == s->k_addr) address = value;
    else if (key == s->k_device_free) device_free = value;
    else if (key == s->k_size) size = value;
    else if (key == s->k_stream) stream = value;
    else if (key == s->k_time_us) time_us = value;
    else if (key == s->k_pool_id) pool = value;
    else if (key == s->k_frames) frames = value;
  }
  TRY(action_code(s, action, &s->action[r]));
  TRY(pool_code(s, pool, &s->pool[r]));
  TRY(stack_code(s, frames, &s->trace_stack[r]));
  column(s, size, 0, &s->size[r]);
  column(s, stream, 0, &s->stream[r]);
  column(s, time_us, -1, &s->time_us[r]);
  /* An oom has no address; what the driver had left stands in its place. */
  column(s, address != absent ? address : device_free, 0, &s->address[r]);
  return true;
}

/* SETITEM and SETITEMS: a dictionary that names an action is an event, one with a file and a function is a frame. */
static bool set_items(Scanner *s, Value target, const Value *pairs, uint64_t count) {
  Node *node = node_of(s, target);
  if (!node || node->kind == LIST || node->kind == TUPLE || node->kind == STACK) FAIL(s, "it sets items of what is no dictionary");
  if (node->kind != DICT) FAIL(s, "it changes an event or a frame after it was complete, which PyTorch never does");
  if (count % 2) FAIL(s, "a dictionary gets a key without a value");
  if (!node->length) {
    bool has_file = false, has_name = false;
    for (uint64_t i = 0; i < count; i += 2) {
      if (TAG(pairs[i]) != TEXT) continue;
      uint32_t key = (uint32_t)PAYLOAD(pairs[i]);
      if (key == s->k_action) {
        uint64_t row;
        TRY(add_event(s, pairs, count, &row));
        settle(node_of(s, target), EVENT, row);
        return true;
      }
      has_file |= key == s->k_filename;
      has_name |= key == s->k_name;
    }
    if (has_file && has_name) {
      uint32_t number;
      TRY(intern_frame(s, pairs, count, &number));
      settle(node_of(s, target), FRAME, number);
      return true;
    }
  }
  return extend(s, node, pairs, count);
}
static bool append_items(Scanner *s, Value target, const Value *values, uint64_t count) {
  Node *node = node_of(s, target);
  if (node && node->kind == STACK) FAIL(s, "it changes a stack after an event used it, which PyTorch never does");
  if (!node || node->kind != LIST) FAIL(s, "it appends to what is no list");
  return extend(s, node, values, count);
}
