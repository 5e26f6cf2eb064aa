package ledger

import "github.com/rockpool/rockpool/test/chaos/moment"

// The figures of a report, with their names in it.
const (
	Kills           = "kills of the server"
	KillsRemoving   = "kills while a sandbox was removed"
	KillsRestoring  = "kills while a server took over"
	Stops           = "stops of the server"
	StopsRestoring  = "stops while a server took over"
	RefusedStarts   = "starts refused, disk full"
	KilledHeld      = "agents killed in held runners"
	KilledIdle      = "agents killed in idle runners"
	KilledStarting  = "agents killed in starting runners"
	Destroyed       = "sandboxes destroyed"
	Fills           = "times that the disk was full"
	TasksKilled     = "tasks killed or restarted"
	JobsEnded       = "jobs and allocations stopped, or jobs purged"
	Drained         = "drains of Nomad's node"
	NomadKills      = "kills of Nomad"
	NomadFreezes    = "freezes of Nomad"
	DockerKills     = "kills of Docker"
	DatabaseFaults  = "kills and freezes of the database"
	LongestWait     = "longest wait for an answer, ms"
	Executions      = "executions"
	Claims          = "claims"
	Disconnects     = "disconnects"
	Rewinds         = "resumed from an older cursor"
	Uploads         = "uploads"
	CutUploads      = "uploads cut"
	NoRunner        = "claims told that there is no runner"
	LostExecutions  = "executions lost"
	BytesExpected   = "bytes expected"
	bytesLostKilled = "bytes declared lost, agent killed"
	bytesLostFull   = "bytes declared lost, disk full"

	bytesSilent     = "bytes lost in silence"
	bytesRepeated   = "bytes repeated"
	bytesForeign    = "bytes made up"
	bytesCauseless  = "bytes declared lost without a cause"
	DoubleClaims    = "double claims"
	ReusedRunners   = "runners reused"
	LostClaims      = "claims lost"
	MadeUp          = "made-up outcomes"
	ChangedOutcomes = "changed outcomes"
	startedTwice    = "programs started twice"
	HalfFiles       = "files neither old nor new"
	FalseErrors     = "errors without a cause"
	UnaskedEnds     = "servers that ended unasked"
	LeakedMounts    = "leaked mounts"
	LeakedCgroups   = "leaked cgroups"
	LeakedProcesses = "leaked processes"
	LeakedRest      = "leaked directories and user ids"
	LeakedJobs      = "leaked jobs, allocations and claims on Nomad"
	Unfinished      = "never finished"
)

// MustBeNone are the figures that must be 0.
var MustBeNone = []string{
	bytesSilent, bytesRepeated, bytesForeign, bytesCauseless, DoubleClaims, ReusedRunners, LostClaims, LostExecutions,
	MadeUp, ChangedOutcomes, startedTwice, HalfFiles, FalseErrors, UnaskedEnds, Unfinished,
	LeakedMounts, LeakedCgroups, LeakedProcesses, LeakedRest, LeakedJobs,
}

// KillsDuring is the figure of kills at a moment.
func KillsDuring(m moment.Moment) string { return "kills " + m.String() }
