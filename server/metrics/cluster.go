package metrics

import (
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/timing"
)

// placement has the figures about allocations that every cluster has.
type placement struct {
	placed      int64
	evaluations map[string]int     // unfinished ones, by state
	lacking     map[string]int     // blocked evaluations, by exhausted dimension
	promised    map[string]float64 // by dimension
}

// placementFamilies are the metrics of allocations.
func placementFamilies[S any](of func(S) placement) []family[S] {
	return []family[S]{
		counter("scheduler_placed_total", "Runners that got an allocation.", func(s S) int64 { return of(s).placed }),
		gauges("scheduler_evaluations", "Evaluations that haven't ended, by state: READY (for a worker), PENDING (behind another of the same runner), OUTSTANDING (a worker has it), DELAYED, FAILED (will be tried again later), BLOCKED (waits for capacity). On Nomad PENDING and BLOCKED, of runners without an allocation. Alert if FAILED stays above 0, or if READY keeps growing.", []string{"state"}, func(s S, emit emitter[float64]) {
			for state, n := range of(s).evaluations {
				emit(float64(n), state)
			}
		}),
		gauges("scheduler_blocked_evaluations", "BLOCKED evaluations, by the dimension that is exhausted: CPU, MEMORY, PROCESSES or WORKSPACE; on Nomad CPU, MEMORY, DISK, QUOTA or OTHER (a matching node, a port, a device). An evaluation that lacks two dimensions counts in both. Alert if it stays above 0: the machine or the cluster is full.", []string{"dimension"}, func(s S, emit emitter[float64]) {
			for dimension, n := range of(s).lacking {
				emit(float64(n), dimension)
			}
		}),
		gauges("scheduler_promised_ratio", "Share of the capacity that is promised to runners with an allocation; 1 is full. On one machine the capacity includes --cpu-overcommit and --memory-overcommit. On Nomad it is CPU and MEMORY of all nodes, and other jobs don't count.", []string{"dimension"}, func(s S, emit emitter[float64]) {
			for dimension, share := range of(s).promised {
				emit(share, dimension)
			}
		}),
	}
}

// taskFigures has the figures about runners' tasks that every cluster has.
type taskFigures struct {
	health.TaskStats
	leaked, problems int
}

// taskFamilies are the metrics of runners' tasks: sandboxes on this machine, or tasks of Nomad.
func taskFamilies[S any](of func(S) taskFigures) []family[S] {
	count := func(name, help string, value func(taskFigures) int64) family[S] {
		return counter("task_"+name, help, func(s S) int64 { return value(of(s)) })
	}
	return []family[S]{
		count("starts_total", "Tasks that were started and whose agent answered.", func(s taskFigures) int64 { return s.Starts }),
		count("start_failures_total", "Failed attempts to start a task. On Nomad also runners that will never get an allocation. Alert if there are many compared with the starts.", func(s taskFigures) int64 { return s.StartFailures }),
		count("restarts_total", "Further attempts to start a task, after a failed one. On Nomad they follow its restart and reschedule policies.", func(s taskFigures) int64 { return s.Restarts }),
		count("restores_total", "Tasks of the previous server that this one took over.", func(s taskFigures) int64 { return s.Restores }),
		count("lost_total", "Tasks of the previous server that were missing, or whose agent didn't answer. Alert on many: something ends runners while no server runs.", func(s taskFigures) int64 { return s.Lost }),
		count("exits_total", "Tasks that ended without a request: the agent died, or was killed because of memory.", func(s taskFigures) int64 { return s.Exits }),
		count("kills_total", "Tasks that were ended to remove their runner.", func(s taskFigures) int64 { return s.Kills }),
		count("removal_failures_total", "Failed attempts to remove a task; they are repeated. On one machine that means processes, mounts and groups. On Nomad the node didn't confirm the end within a minute.", func(s taskFigures) int64 { return s.RemovalFailures }),
		count("leaks_total", "Tasks that leaked; each counts once.", func(s taskFigures) int64 { return s.Leaks }),
		histograms("runner_start_phase_duration_seconds", "Duration of each phase of runners' starts.", []string{"phase"}, func(s S, emit emitter[timing.Reading]) {
			for phase, took := range of(s).Phases {
				emit(took, string(phase))
			}
		}),
		gauge("runners_leaked", "Runners that leak now. Alert on any: an operator must inspect the machine, or Nomad.", func(s S) float64 { return float64(of(s).leaked) }),
		gauge("cluster_problems", "Problems of the cluster that health reports, including leaks. Alert on any.", func(s S) float64 { return float64(of(s).problems) }),
	}
}

// localFamilies are the metrics of the cluster on this machine.
func localFamilies() []family[local.Stats] {
	all := taskFamilies(func(s local.Stats) taskFigures { return taskFigures{s.Tasks, s.Leaked, s.Problems} })
	all = append(all,
		counter("task_forced_kills_total", "Kills after which the first process was still alive a second later, so that they were forced.", func(s local.Stats) int64 { return s.Tasks.ForcedKills }))
	return append(append(all, placementFamilies(localPlacement)...), schedulerFamilies()...)
}

// localPlacement converts the numbers of this machine's cluster.
func localPlacement(s local.Stats) placement {
	d := s.Scheduler.Depths
	p := placement{
		placed:      s.Scheduler.Placed,
		evaluations: map[string]int{"READY": d.Ready, "PENDING": d.Pending, "OUTSTANDING": d.Outstanding, "DELAYED": d.Delayed, "FAILED": d.Failed, "BLOCKED": d.Blocked},
		lacking:     map[string]int{},
		promised:    map[string]float64{},
	}
	for dimension, share := range s.Node.Promised() {
		p.lacking[string(dimension)] = d.Lacking[dimension]
		p.promised[string(dimension)] = share
	}
	return p
}

// schedulerFamilies are the metrics that only the scheduler of this machine has.
func schedulerFamilies() []family[local.Stats] {
	count := func(name, help string, value func(scheduler.Stats) int64) family[local.Stats] {
		return counter("scheduler_"+name, help, func(s local.Stats) int64 { return value(s.Scheduler) })
	}
	return []family[local.Stats]{
		count("enqueued_total", "Evaluations that were put into the queue; repeated ones count again.", func(s scheduler.Stats) int64 { return s.Enqueued }),
		count("dequeued_total", "Evaluations that were delivered to a worker; repeated ones count again.", func(s scheduler.Stats) int64 { return s.Dequeued }),
		count("acks_total", "Evaluations that a worker finished.", func(s scheduler.Stats) int64 { return s.Acked }),
		count("nacks_total", "Evaluations that were returned to the queue, after an error or a timeout.", func(s scheduler.Stats) int64 { return s.Nacked }),
		count("nack_timeouts_total", "Evaluations that were returned to the queue because their worker was silent for too long.", func(s scheduler.Stats) int64 { return s.NackTimeouts }),
		count("superseded_total", "Evaluations that a newer one of the same runner replaced.", func(s scheduler.Stats) int64 { return s.Superseded }),
		count("failed_total", "Evaluations that were given up after three deliveries. A later evaluation follows up on them.", func(s scheduler.Stats) int64 { return s.Failed }),
		count("blocked_total", "Evaluations that began to wait for capacity.", func(s scheduler.Stats) int64 { return s.Blocked }),
		count("unblocked_total", "Evaluations that were woken because capacity became free.", func(s scheduler.Stats) int64 { return s.Unblocked }),
		count("reblocked_total", "Evaluations that were woken, and had to wait again.", func(s scheduler.Stats) int64 { return s.Reblocked }),
		counters("scheduler_plans_total", "Plans, by result: APPLIED, REFUSED (another plan came first).", []string{"result"}, func(s local.Stats, emit emitter[float64]) {
			emit(float64(s.Scheduler.PlansApplied), "APPLIED")
			emit(float64(s.Scheduler.PlansRefused), "REFUSED")
		}),
		count("refreshes_total", "Plans that workers made again after one was REFUSED.", func(s scheduler.Stats) int64 { return s.PlansRefused }),
		count("stopped_total", "Runners whose allocation was revoked.", func(s scheduler.Stats) int64 { return s.Stopped }),
		count("collected_total", "Ended evaluations, allocations and jobs that were deleted.", func(s scheduler.Stats) int64 { return s.Collected }),
		gauges("scheduler_ready_evaluations", "READY evaluations, by type. Only those of type PLACE wait for a worker.", []string{"type"}, func(s local.Stats, emit emitter[float64]) {
			emit(float64(s.Scheduler.Depths.Ready), string(runtime.EvaluationPlace))
		}),
		histograms("scheduler_step_duration_seconds", "Duration of workers' steps, by the evaluation's type and by step: SCHEDULE, PLAN, ACK. Only steps that were carried out.", []string{"type", "step"}, func(s local.Stats, emit emitter[timing.Reading]) {
			for step, took := range s.Scheduler.Timings {
				emit(took, string(runtime.EvaluationPlace), string(step))
			}
		}),
	}
}

// nomadFamilies are the metrics of the cluster on Nomad.
func nomadFamilies() []family[nomad.Stats] {
	all := taskFamilies(func(s nomad.Stats) taskFigures { return taskFigures{s.Tasks, s.Leaked, s.Problems} })
	all = append(all, placementFamilies(nomadPlacement)...)
	return append(all,
		counters("nomad_calls_total", "Attempts to call Nomad's API, by result. Alert on a share of results other than DONE.", []string{"call", "result"}, func(s nomad.Stats, emit emitter[float64]) {
			for call, of := range s.Calls.Calls {
				for result, n := range of.Results {
					emit(float64(n), string(call), string(result))
				}
			}
		}),
		histograms("nomad_call_duration_seconds", "Time until the answer of a call began, without the wait for one of the --nomad-calls. Only calls that were made.", []string{"call"}, func(s nomad.Stats, emit emitter[timing.Reading]) {
			for call, of := range s.Calls.Calls {
				if of.Took.Count() > 0 {
					emit(of.Took, string(call))
				}
			}
		}),
		counter("nomad_call_retries_total", "Calls that were repeated, because Nomad didn't answer or couldn't serve them yet.", func(s nomad.Stats) int64 { return s.Calls.Retries }),
		gauge("nomad_lock_held", "1 while this server owns everything under --nomad-prefix; 0 on a standby.", func(s nomad.Stats) float64 {
			if s.Lock.Held {
				return 1
			}
			return 0
		}),
		gauges("nomad_lock_age_seconds", "Time since the lock was acquired or renewed. Missing if this server doesn't hold it. Alert at half of rockpool_nomad_lock_ttl_seconds: the lock is renewed five times in that time.", nil, func(s nomad.Stats, emit emitter[float64]) {
			if s.Lock.Held {
				emit(s.Lock.Age.Seconds())
			}
		}),
		gauge("nomad_lock_ttl_seconds", "The setting --nomad-lock-ttl. At this age another server may take over, and this one ends.", func(s nomad.Stats) float64 { return s.LockLasts.Seconds() }),
		counter("nomad_lock_losses_total", "Locks that couldn't be renewed in time. The server ends then, so few scrapes see it.", func(s nomad.Stats) int64 { return s.Lock.Losses }),
		gauge("nomad_bridges", "Bridges to agents, open or being opened. Each is a connection to Nomad.", func(s nomad.Stats) float64 { return float64(s.Bridges.Open) }),
		gauge("nomad_bridges_limit", "Largest number of bridges: --nomad-bridges.", func(s nomad.Stats) float64 { return float64(s.Bridges.Budget) }),
		gauge("nomad_bridges_waiting", "Starting runners and executions that wait for a free bridge. Alert if it stays above 0.", func(s nomad.Stats) float64 { return float64(s.Bridges.Waiting) }),
		counter("nomad_bridge_opens_total", "Bridges that were opened.", func(s nomad.Stats) int64 { return s.Bridges.Opens }),
		counter("nomad_bridge_failures_total", "Failed attempts to open a bridge. A starting runner is tried until its agent answers, so a few for each start are normal.", func(s nomad.Stats) int64 { return s.Bridges.Failures }),
		gauge("nomad_streams", "Open streams to agents, for executions and files.", func(s nomad.Stats) float64 { return float64(s.Bridges.OpenStreams) }),
		counter("nomad_streams_opened_total", "Streams to agents that were opened.", func(s nomad.Stats) int64 { return s.Bridges.Streams }),
	)
}

// nomadPlacement converts the numbers of Nomad's cluster. Without a known capacity, nothing is
// promised.
func nomadPlacement(s nomad.Stats) placement {
	p := placement{
		placed:      s.Placed,
		evaluations: map[string]int{"PENDING": s.Pending, "BLOCKED": s.Blocked},
		lacking:     map[string]int{},
		promised:    map[string]float64{},
	}
	for _, dimension := range listing.Dimensions() {
		p.lacking[string(dimension)] = s.Lacking[dimension]
	}
	if c := s.Capacity; c.CPUMHz > 0 && c.MemoryMiB > 0 {
		p.promised[string(listing.CPU)] = float64(c.CPUMHzUsed) / float64(c.CPUMHz)
		p.promised[string(listing.Memory)] = float64(c.MemoryMiBUsed) / float64(c.MemoryMiB)
	}
	return p
}
