package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

// Limits of the doctor's sandbox. Memory and processes are small, so that the tests exceed them
// before their time limit even on a slow machine.
const (
	doctorMemoryMiB = 64
	doctorProcesses = 32
	doctorCPUMHz    = 2000
)

const sandboxMade = "sandbox"

// examineSandbox starts a private server like rockpool serve, and examines one of its runners from
// inside and outside. Without root, limits that can't be set are failures, unless the settings
// accept that.
func examineSandbox(ctx context.Context, settings config.Config, accepted bool, report func(...health.Finding)) {
	const name = sandboxMade
	cache := filepath.Join(settings.Data, "local", "images")
	files, err := os.MkdirTemp("", "rockpool-doctor-")
	if err != nil {
		report(health.Failure(name, "free some space for temporary files", "%v", err))
		return
	}
	defer os.RemoveAll(files)
	settings.Images.Files = files
	began := time.Now()
	say := func(format string, args ...any) {
		report(health.Warning(name, "the next rockpool doctor or temporary server removes it", format, args...))
	}
	err = private.Run(ctx, settings, zap.NewNop(), say, func(ctx context.Context, srv *server.Server) error {
		report(health.Fine("parts", "cgroups, namespaces and the helper work; ready in %v", time.Since(began).Round(time.Millisecond)))
		env := request.Environment{ID: "doctor", PoolSize: new(int)}
		env.MemoryMiB, env.Processes, env.CPUMHz = new(doctorMemoryMiB), new(doctorProcesses), new(doctorCPUMHz)
		if _, _, err := srv.Engine.Environments.Put(access.With(ctx, access.Server()), env); err != nil {
			return err
		}
		for _, lost := range srv.Limitations() {
			report(health.Warning("limitations", "see docs/guides/isolation-tiers.md, \"An ordinary user\", and docs/guides/operating.md", "%s", lost))
		}
		p := subject{client: srv.Client(), group: srv.Config().CgroupParent, accepted: accepted}
		defer p.client.CloseIdle()
		var took time.Duration
		var err error
		if p.runner, took, err = p.claim(ctx, "doctor"); err != nil {
			return err
		}
		if took > time.Second {
			report(health.Warning(name, "pools refill at this pace: check whether the machine is overloaded or its disk slow", "a runner took %v to start", took))
		} else {
			report(health.Fine(name, "a runner started in %v", took.Round(time.Millisecond)))
		}
		if err := p.examine(ctx, report); err != nil {
			return err
		}
		again, err := p.repeat(ctx)
		if err != nil {
			return err
		}
		report(again)
		report(examineImages(ctx, srv, &p, cache))
		report(examineTiers(ctx, srv, &p)...)
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		what, advice := splitAdvice(strings.TrimSpace(line))
		report(health.Failure(name, advice, "%s", what))
	}
}

// splitAdvice splits an error of local.Cluster.Check into the problem and the advice.
func splitAdvice(text string) (what, advice string) {
	for _, separator := range []string{"; ", ": "} {
		if what, advice, ok := strings.Cut(text, separator); ok {
			return what, advice
		}
	}
	return text, "programs can't run until this is fixed"
}

type subject struct {
	client *client.Client
	group  string // cgroup of the server's runners
	runner string

	accepted bool // the settings accept missing limits
}

// claim claims a runner and measures how long that takes. It waits up to 30 s for one.
func (p *subject) claim(ctx context.Context, environment string) (runner string, took time.Duration, err error) {
	began := time.Now()
	runner, err = client.Claim(ctx, p.client, client.ClaimRunnerInput{EnvironmentId: environment, WaitFor: new(30)})
	return runner, time.Since(began), err
}

func (p *subject) shell(ctx context.Context, script string) (client.Result, error) {
	return p.limited(ctx, script, 120)
}

// limited runs a script with a time limit in seconds in the runner.
func (p *subject) limited(ctx context.Context, script string, limit int) (client.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 150*time.Second)
	defer cancel()
	return client.Run(ctx, p.client, client.StartExecutionInput{RunnerId: p.runner, Shell: &script, TimeLimit: &limit})
}

// repeat checks, twice in the same runner, that executions work after one whose processes had to be
// killed.
func (p *subject) repeat(ctx context.Context) (health.Finding, error) {
	const name = "executions"
	for range 2 {
		for _, e := range []struct {
			script, what string
			limit        int
			outcome      runtime.Outcome
			prints       string
		}{
			{"sleep 1000 & echo one", "an execution that leaves a process", 120, runtime.OutcomeExited, "one"},
			{"echo two", "the execution after that", 120, runtime.OutcomeExited, "two"},
			{"while :; do :; done", "an execution that runs into its time limit", 1, runtime.OutcomeTimeLimit, ""},
			{"echo four", "the execution after that", 120, runtime.OutcomeExited, "four"},
		} {
			got, err := p.limited(ctx, e.script, e.limit)
			if err != nil {
				return health.Finding{}, err
			}
			if text := strings.TrimSpace(got.Text()); got.Outcome != e.outcome || text != e.prints {
				return health.Failure(name, "don't run programs on this kernel, and report this with the output of rockpool doctor --json",
					"%s ended with %s and printed %q, not %s and %q: %s", e.what, got.Outcome, text, e.outcome, e.prints, got.Message), nil
			}
		}
	}
	return health.Fine(name, "the next execution in a runner works after one whose processes were killed"), nil
}

// observe is a shell script that prints what a program in a runner sees, one fact per line.
const observe = `
echo uid $(id -u)
while read -r key value; do case $key in CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo ${key%:} $value;; esac; done </proc/self/status
while read -r inside outside count; do echo map $inside $outside $count; done </proc/self/uid_map
for n in user pid mnt net ipc uts cgroup; do echo ns-$n $(readlink /proc/self/ns/$n); done
while read -r name rest; do case $name in *:*) echo interface ${name%%:*};; esac; done </proc/net/dev
touch /workspace/probe && echo workspace writable
(touch /usr/probe) 2>/dev/null && echo usr writable
(cat /etc/shadow) >/dev/null 2>&1 && echo shadow readable
set -- /proc/[0-9]*; echo processes $#
`

// examine reports what a program sees inside of the runner, then its limits. It tries to exceed the
// limits only if all are set. An error means that a program couldn't run, not that a finding
// failed.
func (p *subject) examine(ctx context.Context, report func(...health.Finding)) error {
	seen, err := p.shell(ctx, observe)
	if err != nil {
		return err
	}
	if seen.Outcome != runtime.OutcomeExited {
		return fmt.Errorf("a program in the sandbox ended with %s: %s", seen.Outcome, seen.Message)
	}
	facts := map[string][]string{}
	for line := range strings.Lines(seen.Text()) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		facts[key] = append(facts[key], value)
	}
	host := map[string]string{}
	for _, kind := range ownNamespaces {
		host[kind], _ = os.Readlink("/proc/self/ns/" + kind)
	}
	found := judgeInside(facts, host)
	if !uids.Root() {
		for i := range found {
			if found[i].Name == "users" {
				found[i] = judgeOrdinary(facts)
			}
		}
	}
	report(found...)
	limits := p.readBack()
	report(limits...)
	if slices.ContainsFunc(limits, func(f health.Finding) bool { return f.Status != health.OK }) {
		return nil // without a limit, the next tests could freeze the machine
	}
	return p.exceedLimits(ctx, report)
}

// ownNamespaces are the kinds of namespaces that each runner has for itself, by their names in
// /proc/self/ns.
var ownNamespaces = []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"}

// judgeInside judges the facts that a program in the sandbox printed. host has the machine's
// namespaces, by kind.
func judgeInside(facts map[string][]string, host map[string]string) []health.Finding {
	fact := func(key string) string { return strings.Join(facts[key], ",") }
	report := "the sandbox doesn't isolate on this machine: don't run untrusted programs here, and report this with the output of rockpool doctor --json"
	require := func(ok bool, name, good, wrong string) health.Finding {
		if ok {
			return health.Fine(name, "%s", good)
		}
		return health.Failure(name, report, "%s", wrong)
	}
	shared := slices.DeleteFunc(slices.Clone(ownNamespaces), func(kind string) bool {
		inside := fact("ns-" + kind)
		return inside != "" && inside != host[kind]
	})
	zero := func(mask string) bool { return mask != "" && strings.Trim(mask, "0") == "" }
	count, _ := strconv.Atoi(fact("processes"))
	return []health.Finding{
		require(len(shared) == 0, "namespaces", "own "+strings.Join(ownNamespaces, ", "), "shared with the machine: "+strings.Join(shared, ", ")),
		require(fact("uid") == "1000" && ownRange(facts["map"]), "users", "programs run as their own user, with their own range of uids: "+fact("map"), fmt.Sprintf("programs run as %q with the map %q", fact("uid"), fact("map"))),
		require(zero(fact("CapEff")) && zero(fact("CapBnd")) && fact("NoNewPrivs") == "1", "privileges", "none, and programs can't gain any", fmt.Sprintf("capabilities %s, bounding set %s, NoNewPrivs %s", fact("CapEff"), fact("CapBnd"), fact("NoNewPrivs"))),
		require(fact("Seccomp") == "2", "seccomp", "system calls are filtered", "no filter of system calls is loaded (Seccomp "+fact("Seccomp")+")"),
		require(fact("interface") == "lo", "network", "only a private loopback interface", "interfaces "+fact("interface")),
		require(fact("workspace") == "writable" && fact("usr") == "" && fact("shadow") == "", "files", "a private workspace; the machine's /usr is read-only and its secrets are unreadable", fmt.Sprintf("workspace %s, /usr %s, /etc/shadow %s", fact("workspace"), fact("usr"), fact("shadow"))),
		require(count > 0 && count < 16, "processes", "programs see only those of their runner", fmt.Sprintf("programs see %d processes", count)),
	}
}

// ownRange reports whether all uids inside map to uids outside from 100,000 on, which no user of
// the machine has.
func ownRange(lines []string) bool {
	return len(lines) > 0 && !slices.ContainsFunc(lines, func(line string) bool {
		var inside, outside, count int
		_, err := fmt.Sscan(line, &inside, &outside, &count)
		return err != nil || outside < 100_000
	})
}

func (p *subject) readBack() []health.Finding {
	trees, err := runnersTrees()
	if err != nil && uids.Root() {
		return []health.Finding{health.Failure("limits", "mount the cgroup file system", "%v", err)}
	}
	if lacks := trees.Lacks(); !uids.Root() && len(lacks) > 0 {
		return []health.Finding{p.judgeLacks(lacks, err)}
	}
	found := []health.Finding{health.Fine("commands", "each execution has its own control groups, so a limit is attributed to the execution that exceeded it")}
	if why := trees.Divisible(); why != nil {
		found[0] = health.Fine("commands", "executions share their runner's control groups, because %v: when several run concurrently, a memory or process limit can't always be distinguished from a failure", why)
	}
	for _, l := range []struct {
		controller, v1, v2 string
		most               int64
	}{
		{"memory", "memory.limit_in_bytes", "memory.max", doctorMemoryMiB << 20},
		{"pids", "pids.max", "pids.max", 2 * doctorProcesses}, // the agent has some in addition to the programs
		{"cpu", "cpu.cfs_quota_us", "cpu.max", 1 << 30},
	} {
		dir, file, v2, err := limitOf(trees, p.group, p.runner, l.controller, l.v1, l.v2)
		if err != nil {
			found = append(found, health.Failure(l.controller, "boot with the cgroup controller "+l.controller, "the kernel doesn't have this cgroup controller"))
			continue
		}
		processes, _ := members(dir, v2)
		if commands := filepath.Join(dir, cgroup.Commands); (l.controller != "cpu" || v2) && isDir(commands) {
			dir = commands
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		found = append(found, judgeLimit(l.controller, file, strings.TrimSpace(string(text)), l.most, len(processes), err))
	}
	return found
}

// isDir reports whether path is a directory. A path that can't be read isn't one.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// judgeLimit judges a limit that was read back: it must be a number from 1 to most, and the group
// must have members.
func judgeLimit(controller, file, value string, most int64, members int, err error) health.Finding {
	advice := "let root write to the cgroup controller " + controller + " (a container needs --privileged and --cgroupns=private)"
	first, _, _ := strings.Cut(value, " ")
	number, notNumber := strconv.ParseInt(first, 10, 64)
	switch {
	case err != nil:
		return health.Failure(controller, advice, "the limit can't be read back: %v", err)
	case members == 0:
		return health.Failure(controller, advice, "the runner isn't in its group")
	case notNumber != nil || number <= 0 || number > most:
		return health.Failure(controller, advice, "%s is %q: the limit isn't set", file, value)
	}
	return health.Fine(controller, "%s is %s, and the runner is in that group", file, value)
}

func (p *subject) exceedLimits(ctx context.Context, report func(...health.Finding)) error {
	for _, o := range []struct {
		name, script string
		outcome      runtime.Outcome
	}{
		{"memory limit", "head -c 400000000 /dev/zero | tail", runtime.OutcomeMemoryLimit},
		{"process limit", "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5; do sleep 10 & done; done; wait", runtime.OutcomeProcessLimit},
	} {
		got, err := p.shell(ctx, o.script)
		if err != nil {
			return err
		}
		if got.Outcome == o.outcome {
			report(health.Fine(o.name, "a program that exceeded it was ended"))
		} else {
			report(health.Failure(o.name, "report this with the output of rockpool doctor --json", "a program that exceeded it ended with %s, not %s", got.Outcome, o.outcome))
		}
	}
	return nil
}
