/* What a device is called: its UUID, as bytes and as the text that NVML and CUDA_VISIBLE_DEVICES use. */
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <string.h>

/* "vramdoc" in hexadecimal, then the index: recognisable, and the same in every run. */
void device_uuid(unsigned char uuid[16], int index) {
    memcpy(uuid, "vramdoc virtual", 15);
    uuid[15] = (unsigned char)index;
}
void device_uuid_text(char text[UUID_TEXT], int index) {
    unsigned char uuid[16];
    device_uuid(uuid, index);
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}
