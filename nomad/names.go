package nomad

import (
	"regexp"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// names are those of all that is ours in Nomad.
type names struct{ prefix string }

func (n names) environments() string { return n.prefix + "-env-" }
func (n names) runners() string      { return n.prefix + "-runner-" }
func (n names) claims() string       { return n.prefix + "/runners/" } // a variable's path has no dots
func (n names) lock() string         { return n.prefix + "/lock" }

func (n names) environment(id runtime.EnvironmentID) string { return n.environments() + string(id) }
func (n names) runner(id runtime.RunnerID) string           { return n.runners() + string(id) }
func (n names) claim(id runtime.RunnerID) string            { return n.claims() + string(id) }

var runnerIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// runnerOf returns whose job, or with claims() whose variable, a name is.
func (n names) runnerOf(name, prefix string) (runtime.RunnerID, bool) {
	id, ok := strings.CutPrefix(name, prefix)
	return runtime.RunnerID(id), ok && runnerIDs.MatchString(id)
}

// The keys of a job's meta. A person who registers an environment by hand has to
// set metaEnvironment only, and in it what is to differ from the defaults.
const (
	metaPrefix      = "rockpool_prefix"      // whose it is; "": told by its name
	metaEnvironment = "rockpool_environment" // a runtime.Environment in JSON
	metaVersion     = "rockpool_version"     // the job's version that was written; a later one was changed by hand
	metaBridge      = "rockpool_bridge"      // of a runner: its task, and the command that carries streams to its agent
	metaCreated     = "rockpool_created"     // of a runner: when it was wished for, RFC 3339
)
