package job

import (
	"regexp"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Names are the names of everything that one server has in Nomad.
type Names struct{ Prefix string }

// Environments returns the prefix of the names of environments' jobs.
func (n Names) Environments() string { return n.Prefix + "-env-" }

// Runners returns the prefix of the names of runners' jobs.
func (n Names) Runners() string { return n.Prefix + "-runner-" }

// Claims returns the prefix of the paths of runners' variables. A path has no dots.
func (n Names) Claims() string { return n.Prefix + "/runners/" }

// Lock returns the path of the variable with the server's lock.
func (n Names) Lock() string { return n.Prefix + "/lock" }

// Environment returns the name of an environment's job.
func (n Names) Environment(id runtime.EnvironmentID) string { return n.Environments() + string(id) }

// Runner returns the name of a runner's job.
func (n Names) Runner(id runtime.RunnerID) string { return n.Runners() + string(id) }

// Claim returns the path of a runner's variable.
func (n Names) Claim(id runtime.RunnerID) string { return n.Claims() + string(id) }

// runnerIDs matches valid ids. Names and paths with other ids belong to other programs.
var runnerIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// RunnerOf returns the runner of the job with a name, if it is a runner's.
func (n Names) RunnerOf(job string) (runtime.RunnerID, bool) { return runnerID(job, n.Runners()) }

// ClaimOf returns the runner of the variable at a path, if it is a runner's.
func (n Names) ClaimOf(path string) (runtime.RunnerID, bool) { return runnerID(path, n.Claims()) }

// Owned returns the runner of a listed job, if it is a runner of this server. The job of a server
// whose prefix begins with this server's prefix isn't.
func (n Names) Owned(job *api.JobListStub) (runtime.RunnerID, bool) {
	owner := job.Meta[metaPrefix]
	id, ok := n.RunnerOf(job.ID)
	return id, ok && (owner == "" || owner == n.Prefix)
}

func runnerID(name, prefix string) (runtime.RunnerID, bool) {
	id, ok := strings.CutPrefix(name, prefix)
	return runtime.RunnerID(id), ok && runnerIDs.MatchString(id)
}

// The keys of a job's meta. A person who registers an environment by hand must set only
// metaEnvironment, and in it only the fields that differ from the defaults.
const (
	metaPrefix      = "rockpool_prefix"      // the prefix of the server that owns it; without it the job's name has the prefix
	metaEnvironment = "rockpool_environment" // a runtime.Environment in JSON
	metaVersion     = "rockpool_version"     // the job's version that this server wrote; a later one was changed by hand
	metaBridge      = "rockpool_bridge"      // of a runner: its task, and the command that carries streams to its agent
	metaCreated     = "rockpool_created"     // of a runner: when its start was requested, RFC 3339
)
