// Package nomad is runtime.Cluster on HashiCorp Nomad, over its API.
//
// What has to last is in Nomad and nowhere else: an environment is a
// parameterized job that is never dispatched, the template of its runners; a
// runner is a batch job made from it; that a runner was ready, and its claim, is a
// variable (docs/decisions/0007). All have names that begin with one prefix, and
// a lock in a variable lets one server own them at a time.
//
// The truth is what lists say. Events only cause a refresh, and so do the
// interval and every reconnect: a duplicate, an old or a missing one does no
// harm. A list is shared by all callers that wait for one before it begins, so the
// number of calls doesn't grow with that of pools or runners.
//
// A runner's life, with what says each step:
//
//	STARTING  its job is there; in words: what its evaluation or its task waits for
//	IDLE      its agent answered, and its variable was made
//	CLAIMED   its variable was written a second time
//	STOPPING  Remove was called
//	GONE      its allocation ended, was stopped, replaced or restarted, or its job
//	          isn't there any more
//
// One "agent bridge" per runner, run through alloc exec, carries the streams of
// Dial. Nomad allows only so many connections per client, so bridges have a
// budget: claimed runners go first, and idle ones beyond it get theirs when they
// are claimed.
//
// The parts are packages with locks of their own: connection calls Nomad, job renders
// jobs and reads them, environment and record store what lasts, listing reads the lists,
// outcome says what they mean, bridges and lock do what their names say, and group ends
// all of it together. What is left here are the runners, and what moves them.
package nomad
