/* What streams, events and graphs share while a stream is captured; see graphs.c. */
#ifndef VRAMDOC_CAPTURE_H
#define VRAMDOC_CAPTURE_H

#include "device.h"

typedef struct Node Node;
typedef struct {
    Node **items;
    size_t count, room;
} Nodes;
struct Node {
    int kind;
    bool reached;       /* scratch of the search for unjoined work */
    Nodes dependencies; /* what must be done before it */
};
typedef struct {
    Nodes nodes; /* in order of creation, which is an order of dependency too */
} Graph;

enum { NONE = 0, ACTIVE = 1, INVALIDATED = 2 }; /* cudaStreamCaptureStatus */
typedef struct Capture {
    unsigned long long id;
    int mode, status;
    const void *thread; /* the address of a thread-local: who began it */
    Stream *origin;
    Graph *graph;
    struct Capture *next;
} Capture;
extern Capture *captures;
Capture *capture_with(unsigned long long id); /* NULL: no capture of that id is going on */

struct Stream {
    int device, priority;
    unsigned flags;
    unsigned long long capture; /* the capture's id, 0 for none */
    Nodes frontier;             /* captured work that the stream's next node will depend on */
};
Stream *stream_of(Stream *handle); /* NULL: no such stream */
Stream *stream_at(size_t index);   /* by order of creation; NULL when destroyed */
size_t streams_created(void);

void add_node(Nodes *nodes, Node *node);              /* unless it is in */
void add_nodes(Nodes *nodes, const Nodes *more);
void clear_nodes(Nodes *nodes);

#endif
