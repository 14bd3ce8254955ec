/* Texts, the stack, containers and the memo: what any pickle is made of. It knows no snapshot. */
#pragma once
#include "state.h"

/* ---- texts ------------------------------------------------------------------------------------------------------------ */
struct Bytes { const char *start; uint64_t length; };

static bool text_equal(const Scanner *s, uint32_t number, const void *wanted) {
  const struct Bytes *w = wanted;
  return s->texts[number].length == w->length && !memcmp(s->characters + s->texts[number].start, w->start, w->length);
}
static uint64_t text_hash(const Scanner *s, uint32_t number) {
  return hash_bytes(s->characters + s->texts[number].start, s->texts[number].length);
}
static bool intern_text(Scanner *s, const char *start, uint64_t length, uint32_t *number) {
  struct Bytes wanted = {start, length};
  uint32_t *slot;
  TRY(find_slot(s, &s->text_index, hash_bytes(start, length), text_equal, text_hash, &wanted, &slot));
  if (!*slot) {
    if (s->texts_count >= UINT32_MAX - 1) FAIL(s, "it holds too many texts");
    uint64_t at = s->characters_count;
    TRY(RESERVE(s, characters, length + 1));
    memcpy(s->characters + at, start, length);
    s->characters_count += length;
    APPEND(s, texts, (Text){at, (uint32_t)length});
    *slot = (uint32_t)s->texts_count;
    s->text_index.used++;
  }
  *number = *slot - 1;
  return true;
}

/* ---- the stack and the containers ------------------------------------------------------------------------------------- */
static bool push(Scanner *s, Value value) {
  if (s->stack_count >= FREE_ITEMS * 16 + s->fed / BYTES_PER_CONTAINER) FAIL(s, "it piles up more values than a snapshot needs");
  APPEND(s, stack, value);
  return true;
}
static bool pop(Scanner *s, Value *value) {
  if (!s->stack_count || TAG(s->stack[s->stack_count - 1]) == MARK) FAIL(s, "an opcode finds no value");
  *value = s->stack[--s->stack_count];
  return true;
}
/* The values above the topmost mark; the mark goes, the values stay where they lie until the next push. */
static bool pop_to_mark(Scanner *s, Value **values, uint64_t *count) {
  uint64_t at = s->stack_count;
  while (at && TAG(s->stack[at - 1]) != MARK) at--;
  if (!at) FAIL(s, "an opcode finds no mark");
  *values = s->stack + at;
  *count = s->stack_count - at;
  s->stack_count = at - 1;
  return true;
}
static bool push_integer(Scanner *s, int64_t number) {
  if (FITS60(number)) return push(s, MAKE(INT, number));
  APPEND(s, wide, number);
  return push(s, MAKE(WIDE, s->wide_count - 1));
}
static bool push_node(Scanner *s, unsigned kind) {
  if (s->nodes_count >= FREE_ITEMS + s->fed / BYTES_PER_CONTAINER) FAIL(s, "it holds more containers than its size allows");
  APPEND(s, nodes, (Node){.kind = kind & 7u});
  return push(s, MAKE(NODE, s->nodes_count - 1));
}
static Node *node_of(Scanner *s, Value value) { return TAG(value) == NODE ? &s->nodes[PAYLOAD(value)] : NULL; }

static bool extend(Scanner *s, Node *node, const Value *values, uint64_t count) {
  uint64_t length = (uint64_t)node->length + count;
  if (length >= 1u << 28) FAIL(s, "one of its lists is too long");
  if (length > node->capacity) {
    uint64_t capacity = node->length ? length + length / 2 : length;
    if (capacity >= 1u << 29) capacity = (1u << 29) - 1;
    Value *moved = realloc(node->items, capacity * sizeof *moved);
    if (!moved) FAIL(s, "there is not enough memory for it");
    node->items = moved;
    node->capacity = capacity & ((1u << 29) - 1);
  }
  if (count) memcpy(node->items + node->length, values, count * sizeof *values);
  node->length = (uint32_t)length;
  return true;
}
/* Keep only a number of what was a container. */
static void settle(Node *node, unsigned kind, uint64_t code) {
  free(node->items);
  node->kind = kind & 7u;
  node->capacity = 0;
  node->length = 0;
  node->code = code;
}

/* ---- tuples, memo ---------------------------------------------------------------------------------------------------------- */
static bool push_tuple(Scanner *s, const Value *values, uint64_t count) {
  if (count == 2 && TAG(values[0]) == INT && TAG(values[1]) == INT) {
    int64_t first = PAYLOAD(values[0]), second = PAYLOAD(values[1]);
    /* A pool id; a graph's second half counts up and the first is a pointer-sized counter that stays small. */
    if (first >= 0 && first < 1 << 29 && second >= 0 && second < 1 << 30) return push(s, MAKE(PAIR, first << 30 | second));
  }
  Node node = {.kind = TUPLE};
  TRY(extend(s, &node, values, count)); /* before pushing, which may move the stack */
  if (!push_node(s, TUPLE)) {
    free(node.items);
    return false;
  }
  s->nodes[s->nodes_count - 1] = node;
  return true;
}
static bool put(Scanner *s, uint64_t index) {
  if (!s->stack_count || TAG(s->stack[s->stack_count - 1]) == MARK) FAIL(s, "an opcode finds no value");
  if (index > s->fed) FAIL(s, "it numbers a value beyond its own length");
  if (index >= s->memo_count) {
    TRY(RESERVE(s, memo, index + 1 - s->memo_count));
    memset(s->memo + s->memo_count, 0xFF, (index + 1 - s->memo_count) * sizeof *s->memo); /* tag 15: never put */
    s->memo_count = index + 1;
  }
  s->memo[index] = s->stack[s->stack_count - 1];
  return true;
}
static bool get(Scanner *s, uint64_t index) {
  if (index >= s->memo_count || TAG(s->memo[index]) == 15) FAIL(s, "it refers to a value that was never numbered");
  return push(s, s->memo[index]);
}
