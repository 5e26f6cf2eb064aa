package main

// The figures of a report, by their names in it.
const (
	kills           = "kills of the server"
	killsRemoving   = "kills while a sandbox was removed"
	killsRestoring  = "kills while a server took over"
	stops           = "stops of the server"
	stopsRestoring  = "stops while a server took over"
	refusedStarts   = "starts refused, disk full"
	killedHeld      = "agents killed in held runners"
	killedIdle      = "agents killed in idle runners"
	killedStarting  = "agents killed in starting runners"
	destroyed       = "sandboxes destroyed"
	fills           = "times that the disk was full"
	tasksKilled     = "tasks killed or restarted"
	jobsEnded       = "jobs and allocations stopped, or jobs purged"
	drained         = "drains of Nomad's node"
	nomadKills      = "kills of Nomad"
	nomadFreezes    = "freezes of Nomad"
	executions      = "executions"
	claims          = "claims"
	disconnects     = "disconnects"
	rewinds         = "resumed from an older cursor"
	uploads         = "uploads"
	cutUploads      = "uploads cut"
	noRunner        = "claims told that there is no runner"
	lostExecutions  = "executions lost"
	bytesExpected   = "bytes expected"
	bytesLostKilled = "bytes declared lost, agent killed"
	bytesLostFull   = "bytes declared lost, disk full"

	bytesSilent     = "bytes lost in silence"
	bytesRepeated   = "bytes repeated"
	bytesForeign    = "bytes made up"
	bytesCauseless  = "bytes declared lost without a cause"
	doubleClaims    = "double claims"
	reusedRunners   = "runners reused"
	lostClaims      = "claims lost"
	madeUp          = "made-up outcomes"
	changedOutcomes = "changed outcomes"
	startedTwice    = "programs started twice"
	halfFiles       = "files neither old nor new"
	falseErrors     = "errors without a cause"
	unaskedEnds     = "servers that ended unasked"
	leakedMounts    = "leaked mounts"
	leakedCgroups   = "leaked cgroups"
	leakedProcesses = "leaked processes"
	leakedRest      = "leaked directories and user ids"
	leakedJobs      = "leaked jobs, allocations and claims on Nomad"
	unfinished      = "never finished"
)

// mustBeNone are the figures that have to be 0.
var mustBeNone = []string{
	bytesSilent, bytesRepeated, bytesForeign, bytesCauseless, doubleClaims, reusedRunners, lostClaims, lostExecutions,
	madeUp, changedOutcomes, startedTwice, halfFiles, falseErrors, unaskedEnds, unfinished,
	leakedMounts, leakedCgroups, leakedProcesses, leakedRest, leakedJobs,
}

// killsDuring is the figure of kills at a moment.
func killsDuring(m moment) string { return "kills " + m.String() }
