package job

import (
	"regexp"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Names are those of all that one server has in Nomad.
type Names struct{ Prefix string }

// Environments is what the names of environments' jobs begin with.
func (n Names) Environments() string { return n.Prefix + "-env-" }

// Runners is what the names of runners' jobs begin with.
func (n Names) Runners() string { return n.Prefix + "-runner-" }

// Claims is what the paths of runners' variables begin with. A path has no dots.
func (n Names) Claims() string { return n.Prefix + "/runners/" }

// Lock is the path of the variable with the server's lock.
func (n Names) Lock() string { return n.Prefix + "/lock" }

// Environment is the name of an environment's job.
func (n Names) Environment(id runtime.EnvironmentID) string { return n.Environments() + string(id) }

// Runner is the name of a runner's job.
func (n Names) Runner(id runtime.RunnerID) string { return n.Runners() + string(id) }

// Claim is the path of a runner's variable.
func (n Names) Claim(id runtime.RunnerID) string { return n.Claims() + string(id) }

var runnerIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// RunnerOf returns whose job has a name, if it is a runner's.
func (n Names) RunnerOf(job string) (runtime.RunnerID, bool) { return runnerID(job, n.Runners()) }

// ClaimOf returns whose claim is at the path of a variable, if one is.
func (n Names) ClaimOf(path string) (runtime.RunnerID, bool) { return runnerID(path, n.Claims()) }

// Owned returns whose a listed job is, if it is a runner's of this server, and not of
// another one whose prefix begins with this one's.
func (n Names) Owned(job *api.JobListStub) (runtime.RunnerID, bool) {
	owner := job.Meta[metaPrefix]
	id, ok := n.RunnerOf(job.ID)
	return id, ok && (owner == "" || owner == n.Prefix)
}

func runnerID(name, prefix string) (runtime.RunnerID, bool) {
	id, ok := strings.CutPrefix(name, prefix)
	return runtime.RunnerID(id), ok && runnerIDs.MatchString(id)
}

// The keys of a job's meta. A person who registers an environment by hand has to
// set metaEnvironment only, and in it what is to differ from the defaults.
const (
	metaPrefix      = "rockpool_prefix"      // that of the server that owns it; "": its name says it
	metaEnvironment = "rockpool_environment" // a runtime.Environment in JSON
	metaVersion     = "rockpool_version"     // the job's version that was written; a later one was changed by hand
	metaBridge      = "rockpool_bridge"      // of a runner: its task, and the command that carries streams to its agent
	metaCreated     = "rockpool_created"     // of a runner: when it was wished for, RFC 3339
)
