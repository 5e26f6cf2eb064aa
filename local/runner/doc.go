// Package runner leads one runner through its life: one goroutine prepares it, makes its sandbox,
// makes it again if that can help, watches it, and removes everything of it. It guarantees that a
// runner is removed, or reported as a leak, whatever fails.
//
//	          ┌─── try again, by the restart policy ───┐
//	          ▼                                        │
//	New ─▶ STARTING: turn ─▶ prepare ─▶ create ─▶ ready ─▶ IDLE ─▶ GONE
//	          │                                             │        ▲
//	          ├── attempts used up, or unrecoverable ───────┼────────┤
//	          └── Stop ─────────────▶ STOPPING ◀── Stop ────┘        │
//	                                     └── its processes are gone ─┘
//
// States only move forward. Each is saved before anyone sees it; a change of events alone isn't
// saved. A runner that was IDLE is never made again: it must not come back with an empty workspace.
//
// At its end a runner is removed. First its agent gets SIGKILL. Its sandbox is destroyed as soon as
// the agent has ended, or after a second. Then its directory and user ids are released. A removal that
// failed is tried again with growing pauses, five times in all. Then the runner reports
// what leaked, and each further call of Stop retries once more.
//
// Run ends in two ways. Stop ends the runner. The end of Run's context leaves it running for
// [Runner.Restore] by the next server. The next server compares the recorded start time, so it
// never mistakes a later process with the same id for the runner's.
package runner
