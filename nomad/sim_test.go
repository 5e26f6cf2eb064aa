package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// A sim implements in memory the part of Nomad's API that a Cluster uses. Its lists are true; a
// test can lose, repeat and reorder its events. It places every job immediately, and a bridge can
// be opened to each running allocation. In a bubble of testing/synctest its hours take
// milliseconds.
type sim struct {
	conns chan net.Conn

	mu         sync.Mutex // guards what follows
	index      uint64
	ids        int
	jobs       map[string]*api.Job
	allocs     []*api.AllocationListStub
	evals      []*api.Evaluation
	vars       map[string]*api.Variable
	locks      int
	locked     bool
	lockless   bool          // it answers, but gives no lock
	slowLock   time.Duration // how long its answer takes
	unplaced   bool          // jobs get no allocation yet
	lockedAt   time.Time     // when the lock was acquired or renewed last
	node       api.NodeListStub
	streams    map[chan string]bool
	bridges    map[string][]func() // by allocation
	stuck      bool                // its client executes nothing, though tasks run, until one is signalled
	unhealed   bool                // and then neither
	undead     bool                // allocations run on whose job is purged
	pulling    bool                // runners' images are being pulled, while another task of the allocation runs
	leaderless bool
	deaf       bool                        // it does what it is asked for, and every third answer is lost
	disturb    func(event string) []string // what is sent in place of an event
	calls      map[string]int
	answers    int
}

func newSim() *sim {
	return &sim{
		conns: make(chan net.Conn), index: 10, jobs: map[string]*api.Job{}, vars: map[string]*api.Variable{}, streams: map[chan string]bool{},
		bridges: map[string][]func(){}, calls: map[string]int{}, disturb: func(e string) []string { return []string{e} },
		node: api.NodeListStub{ID: "n1", Status: api.NodeStatusReady, SchedulingEligibility: api.NodeSchedulingEligible,
			Drivers:       map[string]*api.DriverInfo{string(job.RawExec): {Detected: true, Healthy: true}},
			NodeResources: &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: 4000}, Memory: api.NodeMemoryResources{MemoryMB: 4096}}},
	}
}

// serve serves until the test ends.
func (s *sim) serve(t *testing.T) {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(r *http.Request) (any, error){
		"GET /v1/jobs": s.listJobs, "PUT /v1/jobs": s.register, "GET /v1/job/{id}": s.readJob, "DELETE /v1/job/{id}": s.deregister,
		"GET /v1/allocations": s.listAllocations, "GET /v1/evaluations": s.listEvaluations, "GET /v1/evaluation/{id}": s.readEvaluation,
		"GET /v1/vars": s.listVariables, "GET /v1/var/{path...}": s.readVariable, "PUT /v1/var/{path...}": s.writeVariable,
		"DELETE /v1/var/{path...}": s.deleteVariable, "GET /v1/nodes": s.listNodes,
		"PUT /v1/client/allocation/{id}/signal": s.signal,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, pattern, handle) })
	}
	mux.HandleFunc("GET /v1/event/stream", s.stream)
	life, end := context.WithCancel(context.Background())
	server := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return life }}
	listener := pipeListener{s.conns, life.Done()}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		end()
		_ = server.Close()
		<-served
	})
}

// dial connects to the simulator, or fails if its server is down.
func (s *sim) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed <-chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "sim"} }

// A refusedAnswer is an answer that isn't 200.
type refusedAnswer struct {
	status int
	text   string
	body   any
}

func (e *refusedAnswer) Error() string { return e.text }

func (s *sim) answer(w http.ResponseWriter, r *http.Request, pattern string, handle func(*http.Request) (any, error)) {
	s.mu.Lock()
	s.calls[pattern]++
	var body any
	err := error(&refusedAnswer{status: 500, text: "No cluster leader"})
	if !s.leaderless {
		body, err = handle(r)
	}
	index := s.index
	text, _ := json.Marshal(body)
	s.answers++
	lost := s.deaf && s.answers%3 == 0
	s.mu.Unlock()
	if lost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
	w.Header().Set("X-Nomad-LastContact", "0")
	w.Header().Set("X-Nomad-KnownLeader", "true")
	var e *refusedAnswer
	if errors.As(err, &e) {
		w.WriteHeader(e.status)
		if e.body != nil {
			text, _ = json.Marshal(e.body)
			_, _ = w.Write(text)
		} else {
			_, _ = io.WriteString(w, e.text)
		}
		return
	}
	if r.URL.Query().Has("lock-acquire") {
		_ = backoff.Sleep(r.Context(), s.slowLock)
	}
	_, _ = w.Write(text)
}

func (s *sim) id(kind string) string {
	s.ids++
	return fmt.Sprintf("%s-%d", kind, s.ids)
}

func (s *sim) listJobs(r *http.Request) (any, error) {
	all := []*api.JobListStub{}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		job := s.jobs[id]
		if !strings.HasPrefix(id, r.URL.Query().Get("prefix")) {
			continue
		}
		status := "running"
		if !slices.ContainsFunc(s.allocs, func(a *api.AllocationListStub) bool { return a.JobID == id && !listing.Ended(a) }) {
			status = "dead"
		}
		all = append(all, &api.JobListStub{ID: id, Meta: job.Meta, Stop: *job.Stop, Status: status, Priority: *job.Priority, JobModifyIndex: *job.JobModifyIndex})
	}
	return all, nil
}

func (s *sim) register(r *http.Request) (any, error) {
	var request api.JobRegisterRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, &refusedAnswer{status: 400, text: err.Error()}
	}
	wanted := request.Job
	old := s.jobs[*wanted.ID]
	if request.EnforceIndex && (old == nil && request.JobModifyIndex != 0 || old != nil && *old.JobModifyIndex != request.JobModifyIndex) {
		return nil, &refusedAnswer{status: 500, text: "Enforcing job modify index: it is another"}
	}
	s.index++
	wanted.Stop, wanted.Version, wanted.JobModifyIndex = new(false), new(uint64(0)), new(s.index)
	if old != nil {
		wanted.Version = new(*old.Version + 1)
	}
	s.jobs[*wanted.ID] = wanted
	s.tell("Job", *wanted.ID)
	eval := &api.Evaluation{ID: s.id("eval"), JobID: *wanted.ID, Status: api.EvalStatusComplete, CreateIndex: s.index}
	s.evals = append(s.evals, eval)
	if s.unplaced {
		eval.Status = api.EvalStatusBlocked
		eval.FailedTGAllocs = map[string]*api.AllocationMetric{job.TaskName: {NodesEvaluated: 1, NodesExhausted: 1, DimensionExhausted: map[string]int{"memory": 1}}}
	}
	if wanted.ParameterizedJob == nil && old == nil && !s.unplaced {
		s.place(*wanted.ID)
	}
	return api.JobRegisterResponse{EvalID: eval.ID, JobModifyIndex: s.index}, nil
}

// place makes a job's next allocation.
func (s *sim) place(id string) {
	s.index++
	a := &api.AllocationListStub{
		ID: s.id("alloc"), JobID: id, NodeID: s.node.ID, CreateIndex: s.index, ModifyIndex: s.index, DesiredStatus: api.AllocDesiredStatusRun,
		ClientStatus: api.AllocClientStatusRunning, TaskStates: map[string]*api.TaskState{job.TaskName: {State: listing.TaskRuns}},
	}
	if s.pulling {
		a.TaskStates = map[string]*api.TaskState{job.TaskName: {State: "pending"}, "beside": {State: listing.TaskRuns}}
	}
	s.allocs = append(s.allocs, a)
	s.tell("Allocation", a.ID, id)
}

// change changes an allocation.
func (s *sim) change(a *api.AllocationListStub, f func(*api.AllocationListStub)) {
	s.index++
	f(a)
	a.ModifyIndex = s.index
	s.tell("Allocation", a.ID, a.JobID)
	if listing.Ended(a) {
		s.cut(a.ID)
	}
}

// cut breaks the bridges to an allocation.
func (s *sim) cut(allocation string) {
	for _, cancel := range s.bridges[allocation] {
		cancel()
	}
	delete(s.bridges, allocation)
}

func (s *sim) readJob(r *http.Request) (any, error) {
	if job := s.jobs[r.PathValue("id")]; job != nil {
		return job, nil
	}
	return nil, &refusedAnswer{status: 404, text: "job not found"}
}

func (s *sim) deregister(r *http.Request) (any, error) {
	s.purge(r.PathValue("id"), r.URL.Query().Get("purge") == "true")
	eval := &api.Evaluation{ID: s.id("eval"), JobID: r.PathValue("id"), Status: api.EvalStatusComplete, CreateIndex: s.index}
	s.evals = append(s.evals, eval)
	return api.JobDeregisterResponse{EvalID: eval.ID}, nil
}

func (s *sim) purge(id string, purge bool) {
	s.index++
	if job := s.jobs[id]; job != nil && purge {
		delete(s.jobs, id)
	} else if job != nil {
		job.Stop, job.JobModifyIndex = new(true), new(s.index)
	}
	s.tell("Job", id)
	for _, a := range s.allocs {
		if a.JobID == id && !listing.Ended(a) {
			s.change(a, func(a *api.AllocationListStub) {
				a.DesiredStatus = api.AllocDesiredStatusStop
				if !s.undead {
					a.ClientStatus = api.AllocClientStatusComplete
				}
			})
		}
	}
}

func (s *sim) listAllocations(*http.Request) (any, error) { return s.allocs, nil }
func (s *sim) listEvaluations(*http.Request) (any, error) { return s.evals, nil }
func (s *sim) listNodes(*http.Request) (any, error)       { return []*api.NodeListStub{&s.node}, nil }

func (s *sim) readEvaluation(r *http.Request) (any, error) {
	i := slices.IndexFunc(s.evals, func(e *api.Evaluation) bool { return e.ID == r.PathValue("id") })
	if i < 0 {
		return nil, &refusedAnswer{status: 404, text: "eval not found"}
	}
	return s.evals[i], nil
}

func (s *sim) listVariables(r *http.Request) (any, error) {
	all := []*api.VariableMetadata{}
	for path, v := range s.vars {
		if strings.HasPrefix(path, r.URL.Query().Get("prefix")) {
			all = append(all, &api.VariableMetadata{Path: path, CreateIndex: v.CreateIndex, ModifyIndex: v.ModifyIndex, CreateTime: v.CreateTime})
		}
	}
	return all, nil
}

func (s *sim) readVariable(r *http.Request) (any, error) {
	if v := s.vars[r.PathValue("path")]; v != nil {
		return v, nil
	}
	return nil, &refusedAnswer{status: 404, text: "variable not found"}
}

func (s *sim) writeVariable(r *http.Request) (any, error) {
	var v api.Variable
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		return nil, &refusedAnswer{status: 400, text: err.Error()}
	}
	query := r.URL.Query()
	if query.Has("lock-acquire") || query.Has("lock-renew") || query.Has("lock-release") {
		s.locks++
		s.lockedAt, s.locked = time.Now(), !query.Has("lock-release")
		if !s.lockless {
			v.Lock = &api.VariableLock{ID: "lock", TTL: "10s"}
		} else {
			v.Lock = nil
		}
		return v, nil
	}
	old, index := s.vars[v.Path], query.Get("cas")
	have := uint64(0)
	if old != nil {
		have = old.ModifyIndex
	}
	if index != strconv.FormatUint(have, 10) {
		conflict := old
		if conflict == nil {
			conflict = &api.Variable{Path: v.Path}
		}
		return nil, &refusedAnswer{status: 409, body: conflict}
	}
	s.index++
	v.CreateIndex, v.ModifyIndex, v.CreateTime = s.index, s.index, time.Now().UnixNano()
	if old != nil {
		v.CreateIndex, v.CreateTime = old.CreateIndex, old.CreateTime
	}
	s.vars[v.Path] = &v
	return v, nil
}

func (s *sim) deleteVariable(r *http.Request) (any, error) {
	delete(s.vars, r.PathValue("path"))
	s.index++
	return nil, nil
}

// tell sends an event to all subscribers, after it was disturbed. The caller holds mu.
func (s *sim) tell(topic, key string, filters ...string) {
	text, _ := json.Marshal(api.Events{Index: s.index, Events: []api.Event{{Topic: api.Topic(topic), Key: key, FilterKeys: filters, Index: s.index}}})
	for _, event := range s.disturb(string(text)) {
		for stream := range s.streams {
			select {
			case stream <- event:
			default: // too slow: it loses events
			}
		}
	}
}

func (s *sim) stream(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 100)
	s.mu.Lock()
	leaderless := s.leaderless
	s.streams[events] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, events)
		s.mu.Unlock()
	}()
	if leaderless {
		http.Error(w, "No cluster leader", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusOK)
	heartbeat := time.NewTicker(30 * time.Second)
	defer heartbeat.Stop()
	for {
		_ = http.NewResponseController(w).Flush()
		text := "{}"
		select {
		case event, open := <-events:
			if !open {
				return
			}
			text = event
		case <-heartbeat.C:
		case <-r.Context().Done():
			return
		}
		if _, err := io.WriteString(w, text+"\n"); err != nil {
			return
		}
	}
}

// breakStreams cuts every event stream.
func (s *sim) breakStreams() {
	for stream := range s.streams {
		close(stream)
		delete(s.streams, stream)
	}
}

func (s *sim) signal(r *http.Request) (any, error) {
	var request api.AllocSignalRequest
	err := json.NewDecoder(r.Body).Decode(&request)
	if err != nil || request.Signal != "SIGCONT" || request.Task != job.TaskName {
		return nil, &refusedAnswer{status: 400, text: fmt.Sprintf("%+v", request)}
	}
	s.stuck = s.unhealed
	return struct{}{}, nil
}

// openBridge stands for alloc exec and the agent's bridge: package yamux shares
// timers between bubbles, which they don't allow.
func (s *sim) openBridge(ctx context.Context, _ *connection.Client, _, allocation string, _ job.AgentAccess) (bridgeSession, error) {
	if err := backoff.Sleep(ctx, 3*time.Millisecond); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaderless || !slices.ContainsFunc(s.allocs, func(a *api.AllocationListStub) bool { return a.ID == allocation && !listing.Ended(a) }) {
		return nil, errors.New("the allocation isn't running")
	}
	if s.stuck || s.pulling {
		return nil, errors.New(`alloc exec ended: task "runner" not started yet.`)
	}
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	s.bridges[allocation] = append(s.bridges[allocation], end)
	return simSession{done, end}, nil
}

type simSession struct {
	done chan struct{}
	end  func()
}

func (s simSession) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	select {
	case <-s.done:
		return ours, net.ErrClosed
	default:
		return ours, nil
	}
}
func (s simSession) Done() <-chan struct{} { return s.done }
func (s simSession) Close() error {
	s.end()
	return nil
}
