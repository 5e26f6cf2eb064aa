package serve

import (
	"time"

	"github.com/rockpool/rockpool/agent"
)

func (s *Server) usage() *agent.Usage {
	usage := &agent.Usage{Runner: s.executor.Now(), Executions: map[string]agent.ExecutionUsed{}}
	for _, x := range s.all() {
		if now, ok := x.usage(); ok {
			usage.Executions[x.start.ID] = now
		}
	}
	return usage
}

func (s *Server) all() []*execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*execution, 0, len(s.executions))
	for _, x := range s.executions {
		all = append(all, x)
	}
	return all
}

// usage returns the execution's usage. It returns false if the execution doesn't run.
func (x *execution) usage() (agent.ExecutionUsed, bool) {
	select {
	case <-x.ready:
	default:
		return agent.ExecutionUsed{}, false
	}
	if x.err != nil {
		return agent.ExecutionUsed{}, false
	}
	x.measuring.Lock() // the process is closed only after it
	defer x.measuring.Unlock()
	if x.closed {
		return agent.ExecutionUsed{}, false
	}
	return agent.ExecutionUsed{Wall: time.Since(x.at), Used: x.process.Now()}, true
}

// close closes the process after a measurement in progress.
func (x *execution) close() Usage {
	x.measuring.Lock()
	defer x.measuring.Unlock()
	x.closed = true
	return x.process.Close()
}
