// Package scheduler decides when each runner gets its allocation on this machine. It guarantees
// that nothing is placed beyond the machine's capacity, that no registered runner is forgotten, and
// that no tenant starves another, nor one environment another of the same tenant.
//
// A runner is registered as a [Job]. Every change of what is wanted makes an evaluation: the work of
// bringing a job from its present allocations to the wanted ones. An allocation is a runner's share
// of the machine. It takes room until [Scheduler.Update] reports that it has ended.
//
//	Register  Restore
//	    └────────┤
//	             ▼                                          ┌─ delayed ◄──────────────┐
//	           ready ◄──────────────────────────────────────┘                         │
//	             ▲   (by priority, tenants by turns, environments too;                │ nack, 1 s, 4 s:
//	             │    each job has one outstanding                                    │ conflicts, a timeout
//	             │    evaluation at most; its newest one waits)                       │
//	             │       │ dequeue, with a token                                      │
//	             │       ▼                                                            │
//	             │    worker: plans with what it sees ── applies, with the token ─────┤
//	             │       ▲                                      │                     │ third time
//	             │       └──── refused: the state has changed ──┤                     ▼
//	             │                                              ├─ placed ─► COMPLETE, Placed is called, ack
//	             │                                              │            FAILED ── follow-up, 1 min later
//	             │                                              └─ no room ─► BLOCKED, ack
//	             └──────────────────────────────────────────────────┘ room was freed and promised to it
//
// An evaluation that a newer one of its job supersedes is CANCELLED. Deregister and the collection
// of ended records need no worker: they act immediately, and leave a COMPLETE evaluation.
//
// One lock guards the queue and the state. Workers plan without it, so two plans can want the same
// room; then one is refused. While the machine drains, nothing is dequeued.
//
// Everything is in memory. The runners' records outlive the server, and Restore starts from them.
package scheduler
