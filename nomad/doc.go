// Package nomad implements runtime.Cluster on HashiCorp Nomad, over its HTTP API. It guarantees
// that one server at a time manages a prefix, and that nothing that must last is lost when that
// server ends.
//
// All lasting state is in Nomad. An environment is a parameterized job that is never dispatched,
// the template of its runners. A runner is a batch job made from it. A variable for each runner
// records that it was ready, and its claim (docs/decisions/0007). All their names begin with one
// prefix. A lock in a variable ensures that one server owns them at a time.
//
// Nomad's lists are the truth. Events only cause a refresh, as do the interval and every reconnect.
// So a duplicate, late or missing event is harmless. All callers that wait for a list before it
// begins share it. So the number of calls doesn't grow with the number of pools or runners.
//
// The states of a runner, and the evidence for each:
//
//	STARTING  its job exists; the message says what its evaluation or task waits for
//	IDLE      its agent answered, and its variable was created
//	CLAIMED   its variable was written a second time
//	STOPPING  Remove was called
//	GONE      its allocation ended, was stopped, replaced or restarted, or its job
//	          no longer exists
//
// Each runner has one "agent bridge", which runs through alloc exec and carries the streams of
// Dial. Nomad limits the connections of a client, so bridges have a budget. Claimed runners go
// first; idle runners beyond the budget get their bridge when they are claimed.
//
// The parts are packages with locks of their own. Package connection calls Nomad, job renders and
// parses jobs, state keeps what must last, and the ownership, and listing reads lists and interprets
// them. This package has the bridges, and the runners and their state transitions.
package nomad
