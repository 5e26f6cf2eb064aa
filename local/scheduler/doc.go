// Package scheduler decides when each runner gets its place on this machine. It guarantees that
// nothing is placed beyond the machine's capacity, that no registered runner is forgotten, and that
// no tenant starves another, nor one environment another of the same tenant.
//
// A runner is registered as a [Job]. Every change of what is wanted makes an [Evaluation]: the work
// of bringing a job from its present allocations to the wanted ones. An [Allocation] is a runner's
// place. The caller that runs allocations follows [Scheduler.Orders] and reports with
// [Scheduler.Update].
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
//	            │       ├── applied as a whole ──────────────────► COMPLETE, ack
//	            │       └── no room ──► BLOCKED, ack ── its shortages are recorded
//	            │                          │
//	            └──────────────────────────┘ room was freed and promised to this evaluation
//
// An evaluation that a newer one of its job supersedes is CANCELLED.
//
// Each part exists for a reason. The planner is disabled until it is known which runners of the
// last server are alive; workers retry meanwhile. The workers that place runners are parked while
// the machine drains; stops continue. Several workers make plans concurrently, so two plans can
// want the same room, and one is refused. An evaluation is given back at shutdown and when its
// worker is stuck. Unlike in Nomad, there is no wait for a scheduler of another version: one binary
// contains all of it.
//
// Everything is in memory. The runners' records outlive the server, and Restore starts from them.
package scheduler
