// Package scheduler decides when which runner gets its place on this machine.
// Nothing is placed beyond what can be promised, no wish is forgotten, and no
// tenant keeps another from its turn, nor within a tenant an environment another.
//
// A wish for a runner is a [Job]. Every change of what is wanted makes an
// [Evaluation]: the work of bringing a job from what it has to what it wants.
// What it has is an [Allocation], its place; who runs allocations follows
// [Scheduler.Orders] and answers with [Scheduler.Update].
//
//	Register  Deregister  Restore  Update(LOST)  interval
//	    └─────────┴─────┬────┴──────────┴───────────┘
//	                    ▼                                  ┌─ delayed ◄──────────────┐
//	 state ── broker: ready ◄──────────────────────────────┘                         │
//	            ▲    (by priority, tenants by turns, environments too;               │ nack, 1 s, 4 s:
//	            │     of a job one is outstanding, the newest waits)                 │ an error, a timeout,
//	            │       │ dequeue, with a token                                      │ shutdown
//	            │       ▼                                                            │
//	            │    worker ── waits for the state, reconciles on a snapshot ────────┤
//	            │       │ ▲                                                          │ third time
//	            │       │ └── refused: a fresh snapshot ──┐                          ▼
//	            │       ▼ plan, with the token            │                       FAILED ── follow-up,
//	            │    planner ── checks it against the state as it is             1 min later
//	            │       │
//	            │       ├── all of it applied ──────────────────► COMPLETE, ack
//	            │       └── no room ──► BLOCKED, ack ── what it lacks is said
//	            │                          │
//	            └──────────────────────────┘ room was freed, and is promised to this one
//
// An evaluation that a newer one of its job makes needless is CANCELLED.
//
// Every part has its cause here. The planner is disabled until it is known
// which runners of the last server live; workers try again meanwhile. The
// workers that place are parked while the machine drains; stops go on. Plans
// are made at once by several workers, so two can want the same room, and one
// is refused. An evaluation is given back at shutdown, and by a worker that is
// stuck. What one server binary makes impossible isn't here: there is no wait
// for a scheduler of another version.
//
// All is in memory: what must outlive the server are the runners' records, from
// which Restore begins anew.
package scheduler
