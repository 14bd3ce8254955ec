/* The opcodes of protocols 2 to 5, and of 1 where they are the same. What could call or import is refused by name. */
#pragma once
#include "records.h"

/* ---- opcodes ----------------------------------------------------------------------------------------------------------------- */
static uint64_t little(const uint8_t *at, int width) {
  uint64_t number = 0;
  for (int i = 0; i < width; i++) number |= (uint64_t)at[i] << 8 * i;
  return number;
}
/* LONG1, LONG4: two's complement of any length; what needs more than 64 bits is a WIDE without a value. */
static bool push_long(Scanner *s, const uint8_t *at, uint64_t length) {
  uint8_t sign = length && at[length - 1] & 0x80 ? 0xFF : 0;
  while (length > 8 && at[length - 1] == sign) length--;
  if (length > 8 || (length == 8 && (at[7] ^ sign) & 0x80)) return push(s, MAKE(WIDE, -1));
  uint64_t number = little(at, (int)length);
  if (length < 8 && sign) number |= ~0ULL << 8 * length;
  return push_integer(s, (int64_t)number);
}
static double big_endian_double(const uint8_t *at) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; i++) bits = bits << 8 | at[i];
  double number;
  memcpy(&number, &bits, 8);
  return number;
}

/* What follows an opcode: a fixed number of bytes, or a length of 1, 4 or 8 bytes and that many more. */
enum { PREFIX1 = -1, PREFIX4 = -4, PREFIX8 = -8, LINES2 = -20, NOT_AN_OPCODE = -99 };
static int argument_of(uint8_t opcode) {
  switch (opcode) {
    case '(': case ')': case '.': case '0': case '1': case '2': case 'N': case ']': case '}': case 'a': case 'e': case 'l':
    case 'd': case 's': case 't': case 'u': case 0x85: case 0x86: case 0x87: case 0x88: case 0x89: case 0x94:
    case 'R': case 'b': case 'o': case 'Q': case 0x81: case 0x92: case 0x93: case 0x97: case 0x98: case 0x8f: case 0x90: case 0x91:
      return 0;
    case 'K': case 'h': case 'q': case 0x80: case 0x82: return 1;
    case 'M': case 0x83: return 2;
    case 'J': case 'j': case 'r': case 0x84: return 4;
    case 'G': case 0x95: return 8;
    case 'U': case 'C': case 0x8a: case 0x8c: return PREFIX1;
    case 'T': case 'B': case 'X': case 0x8b: return PREFIX4;
    case 0x8d: case 0x8e: case 0x96: return PREFIX8;
    case 'c': case 'i': return LINES2;
    default: return NOT_AN_OPCODE;
  }
}
/* How long the whole opcode is. 0: more bytes are needed to tell. */
static bool length_of(Scanner *s, const uint8_t *at, uint64_t available, uint64_t *length) {
  int argument = argument_of(at[0]);
  *length = 0;
  if (argument >= 0) {
    *length = 1 + (uint64_t)argument;
  } else if (argument == LINES2) { /* module and name, each ended by a newline */
    const uint8_t *first = memchr(at + 1, '\n', available - 1);
    const uint8_t *second = first ? memchr(first + 1, '\n', available - (uint64_t)(first + 1 - at)) : NULL;
    if (second) *length = (uint64_t)(second + 1 - at);
    else if (available > 4096) FAIL(s, "it asks to import a name without an end, which is refused");
  } else if (argument == NOT_AN_OPCODE) {
    FAIL(s, "byte 0x%02x is no opcode", at[0]);
  } else {
    uint64_t prefix = (uint64_t)-argument;
    if (available > prefix) {
      uint64_t rest = little(at + 1, (int)prefix);
      if (rest > LONGEST_ARGUMENT) FAIL(s, "it declares a value of %llu bytes", (unsigned long long)rest);
      *length = 1 + prefix + rest;
    }
  }
  return true;
}

static bool refuse_import(Scanner *s, const char *module, int module_length, const char *name, int name_length) {
  FAIL(s, "it asks to import '%.*s'.'%.*s', which is refused", module_length > 60 ? 60 : module_length, module,
       name_length > 60 ? 60 : name_length, name);
}

/* Run one whole opcode. */
static bool run(Scanner *s, const uint8_t *at, uint64_t length) {
  const uint8_t *argument = at + 1;
  Value value, target, *values;
  uint64_t count;
  uint32_t text;
  switch (at[0]) {
    case 0x80: /* PROTO */
      if (argument[0] > 5) FAIL(s, "its pickle protocol %d is unknown", argument[0]);
      return true;
    case 0x95: return true; /* FRAME: only a hint for buffering */
    case '(': return push(s, MAKE(MARK, 0));
    case '0': /* POP takes a mark as well */
      if (!s->stack_count) FAIL(s, "an opcode finds no value");
      s->stack_count--;
      return true;
    case '1': return pop_to_mark(s, &values, &count);
    case '2':
      TRY(pop(s, &value));
      return push(s, value) && push(s, value);
    case 'N': return push(s, MAKE(NONE, 0));
    case 0x88: return push(s, MAKE(BOOL, 1));
    case 0x89: return push(s, MAKE(BOOL, 0));
    case 'K': return push(s, MAKE(INT, argument[0]));
    case 'M': return push(s, MAKE(INT, little(argument, 2)));
    case 'J': return push(s, MAKE(INT, (int64_t)(int32_t)little(argument, 4)));
    case 0x8a: return push_long(s, argument + 1, length - 2);
    case 0x8b: return push_long(s, argument + 4, length - 5);
    case 'G':
      APPEND(s, reals, big_endian_double(argument));
      return push(s, MAKE(REAL, s->reals_count - 1));
    case 'U': case 0x8c:
      TRY(intern_text(s, (const char *)argument + 1, length - 2, &text));
      return push(s, MAKE(TEXT, text));
    case 'T': case 'X':
      TRY(intern_text(s, (const char *)argument + 4, length - 5, &text));
      return push(s, MAKE(TEXT, text));
    case 0x8d:
      TRY(intern_text(s, (const char *)argument + 8, length - 9, &text));
      return push(s, MAKE(TEXT, text));
    case 'C': case 'B': case 0x8e: case 0x96: case 0x8f: /* bytes and sets: nothing of a snapshot */
      return push(s, MAKE(OPAQUE, 0));
    case 0x90: /* ADDITEMS */
      return pop_to_mark(s, &values, &count);
    case 0x91: /* FROZENSET */
      return pop_to_mark(s, &values, &count) && push(s, MAKE(OPAQUE, 0));
    case ']': return push_node(s, LIST);
    case '}': return push_node(s, DICT);
    case ')': return push_tuple(s, NULL, 0);
    case 0x85: case 0x86: case 0x87: {
      Value items[3];
      int wanted = at[0] - 0x84;
      for (int i = wanted; i--;) TRY(pop(s, &items[i]));
      return push_tuple(s, items, (uint64_t)wanted);
    }
    case 't': return pop_to_mark(s, &values, &count) && push_tuple(s, values, count);
    case 'l': case 'd': {
      TRY(pop_to_mark(s, &values, &count));
      if (at[0] == 'd' && count % 2) FAIL(s, "a dictionary gets a key without a value");
      Value *copy = malloc(count * sizeof *copy + 1);
      if (!copy) FAIL(s, "there is not enough memory for it");
      if (count) memcpy(copy, values, count * sizeof *copy);
      bool done = push_node(s, at[0] == 'l' ? LIST : DICT);
      target = done ? s->stack[s->stack_count - 1] : 0;
      if (done && count) done = at[0] == 'l' ? append_items(s, target, copy, count) : set_items(s, target, copy, count);
      free(copy);
      return done;
    }
    case 'a':
      TRY(pop(s, &value) && pop(s, &target));
      return append_items(s, target, &value, 1) && push(s, target);
    case 'e':
      TRY(pop_to_mark(s, &values, &count) && pop(s, &target));
      return append_items(s, target, values, count) && push(s, target);
    case 's': {
      Value pair[2];
      TRY(pop(s, &pair[1]) && pop(s, &pair[0]) && pop(s, &target));
      return set_items(s, target, pair, 2) && push(s, target);
    }
    case 'u':
      TRY(pop_to_mark(s, &values, &count) && pop(s, &target));
      return set_items(s, target, values, count) && push(s, target);
    case 0x94: return put(s, s->memo_count);
    case 'q': return put(s, argument[0]);
    case 'r': return put(s, little(argument, 4));
    case 'h': return get(s, argument[0]);
    case 'j': return get(s, little(argument, 4));
    case '.':
      TRY(pop(s, &s->root));
      s->finished = true;
      return true;
    case 'c': case 'i': {
      const char *module = (const char *)argument, *end = (const char *)at + length - 1;
      const char *middle = memchr(module, '\n', (size_t)(end - module));
      return refuse_import(s, module, (int)(middle - module), middle + 1, (int)(end - middle - 1));
    }
    case 0x93: /* STACK_GLOBAL */
      TRY(pop(s, &value) && pop(s, &target));
      if (TAG(value) == TEXT && TAG(target) == TEXT) {
        Text module = s->texts[PAYLOAD(target)], name = s->texts[PAYLOAD(value)];
        return refuse_import(s, s->characters + module.start, (int)module.length, s->characters + name.start, (int)name.length);
      }
      FAIL(s, "it asks to import something without a name, which is refused");
    case 'Q': FAIL(s, "it refers to an outside object, which is refused");
    case 0x82: case 0x83: case 0x84: FAIL(s, "it asks for a registered extension, which is refused");
    case 0x97: case 0x98: FAIL(s, "it asks for an outside buffer, which is refused");
    default: FAIL(s, "it asks to build or call something, which is refused"); /* R b o 0x81 0x92 */
  }
}
