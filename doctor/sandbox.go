package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

// The limits of the doctor's sandbox: small where they are going to be
// overstepped, and that before the time is up on a slow machine, too.
const (
	doctorMemoryMiB = 64
	doctorProcesses = 32
	doctorCPUMHz    = 2000
)

// slowSandbox is how long one may take to make before a pool has a hard time.
const slowSandbox = time.Second

// sandboxMade is the name of the finding about making one.
const sandboxMade = "sandbox"

// examineSandbox starts a server as rockpool serve does, and looks at a runner
// of it from inside and outside. Without root, limits that can't be set are a
// failure unless they were accepted.
func examineSandbox(ctx context.Context, settings config.Config, accepted bool, tell func(...finding.Finding)) {
	const name = sandboxMade
	cache := filepath.Join(settings.Data, "local", "images")
	files, err := os.MkdirTemp("", "rockpool-doctor-")
	if err != nil {
		tell(finding.Failure(name, "make room for temporary files", "%v", err))
		return
	}
	defer os.RemoveAll(files)
	settings.Images.Files = files
	began := time.Now()
	say := func(format string, args ...any) {
		tell(finding.Warning(name, "it goes by itself with the next doctor or private run", format, args...))
	}
	err = private.Run(ctx, settings, zap.NewNop(), say, func(ctx context.Context, srv *server.Server) error {
		tell(finding.Fine("parts", "cgroups, namespaces and the helper are there; ready in %v", time.Since(began).Round(time.Millisecond)))
		env := engine.PutEnvironmentInput{ID: "doctor", PoolSize: new(int)}
		env.MemoryMiB, env.Processes, env.CPUMHz = pointer(doctorMemoryMiB), pointer(doctorProcesses), pointer(doctorCPUMHz)
		if _, _, err := srv.Engine.PutEnvironment(ctx, env); err != nil {
			return err
		}
		if lost := srv.Limitations(); lost != "" {
			tell(finding.Warning("without root", "see docs/guides/isolation-tiers.md, \"An ordinary user\"", "%s", lost))
		}
		p := patient{client: srv.Client(), group: srv.Config().CgroupParent, accepted: accepted}
		defer p.client.CloseIdle()
		var took time.Duration
		var err error
		if p.runner, took, err = p.claim(ctx, "doctor"); err != nil {
			return err
		}
		if took > slowSandbox {
			tell(finding.Warning(name, "pools refill at this pace: see whether the machine is overloaded, or its disk slow", "a runner took %v to start", took))
		} else {
			tell(finding.Fine(name, "a runner started in %v", took.Round(time.Millisecond)))
		}
		if err := p.examine(ctx, tell); err != nil {
			return err
		}
		tell(examineImages(ctx, srv, &p, cache))
		tell(examineTiers(ctx, srv, &p)...)
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		what, advice := splitAdvice(strings.TrimSpace(line))
		tell(finding.Failure(name, advice, "%s", what))
	}
}

// splitAdvice splits what local.Cluster.Check says into what is missing and what
// to do.
func splitAdvice(text string) (what, advice string) {
	for _, separator := range []string{"; ", ": "} {
		if what, advice, ok := strings.Cut(text, separator); ok {
			return what, advice
		}
	}
	return text, "no program can be run until this is put right"
}

func pointer(n int) *int { return &n }

// A patient is the runner that is examined.
type patient struct {
	client *client.Client
	group  string // the server's cgroup
	runner string

	accepted bool // limits that can't be set without root
}

func (p *patient) claim(ctx context.Context, environment string) (runner string, took time.Duration, err error) {
	began := time.Now()
	runner, err = client.Claim(ctx, p.client, client.ClaimRunnerInput{EnvironmentId: environment, WaitFor: pointer(30)})
	return runner, time.Since(began), err
}

// shell runs a script in the runner.
func (p *patient) shell(ctx context.Context, script string) (client.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 150*time.Second)
	defer cancel()
	return client.Run(ctx, p.client, client.StartExecutionInput{RunnerId: p.runner, Shell: &script, TimeLimit: pointer(120)})
}

// look prints what a program in a runner sees, one fact per line.
const look = `
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

func (p *patient) examine(ctx context.Context, tell func(...finding.Finding)) error {
	seen, err := p.shell(ctx, look)
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
	for _, kind := range namespaces {
		host[kind], _ = os.Readlink("/proc/self/ns/" + kind)
	}
	found := judgeInside(facts, host)
	if os.Geteuid() != 0 {
		for i := range found {
			if found[i].Name == "users" {
				found[i] = judgeOrdinary(facts)
			}
		}
	}
	tell(found...)
	limits := p.readBack()
	tell(limits...)
	for _, f := range limits {
		if f.Status != finding.OK {
			return nil // what isn't limited isn't overstepped: it could freeze the machine
		}
	}
	return p.overstep(ctx, tell)
}

var namespaces = []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"}

// judgeInside judges what a program in the sandbox saw of itself; host are the
// links of the namespaces outside.
func judgeInside(facts map[string][]string, host map[string]string) []finding.Finding {
	fact := func(key string) string { return strings.Join(facts[key], ",") }
	report := "the sandbox isn't tight on this machine: don't run strangers' programs here, and report it with the output of rockpool doctor --json"
	require := func(ok bool, name, good, wrong string) finding.Finding {
		if ok {
			return finding.Fine(name, "%s", good)
		}
		return finding.Failure(name, report, "%s", wrong)
	}
	var shared []string
	for _, kind := range namespaces {
		if inside := fact("ns-" + kind); inside == "" || inside == host[kind] {
			shared = append(shared, kind)
		}
	}
	zero := func(mask string) bool { return mask != "" && strings.Trim(mask, "0") == "" }
	count, _ := strconv.Atoi(fact("processes"))
	return []finding.Finding{
		require(len(shared) == 0, "namespaces", "own "+strings.Join(namespaces, ", "), "shared with the machine: "+strings.Join(shared, ", ")),
		require(fact("uid") == "1000" && rangeApart(facts["map"]), "users", "programs run as an own user of an own range: "+fact("map"), fmt.Sprintf("programs run as %q with the map %q", fact("uid"), fact("map"))),
		require(zero(fact("CapEff")) && zero(fact("CapBnd")) && fact("NoNewPrivs") == "1", "privileges", "none, and none can be gained", fmt.Sprintf("capabilities %s, bounding set %s, NoNewPrivs %s", fact("CapEff"), fact("CapBnd"), fact("NoNewPrivs"))),
		require(fact("Seccomp") == "2", "seccomp", "system calls are filtered", "no filter of system calls is loaded (Seccomp "+fact("Seccomp")+")"),
		require(fact("interface") == "lo", "network", "none but the own loopback", "interfaces "+fact("interface")),
		require(fact("workspace") == "writable" && fact("usr") == "" && fact("shadow") == "", "files", "an own workspace; the machine's /usr read-only, and no secrets", fmt.Sprintf("workspace %s, /usr %s, /etc/shadow %s", fact("workspace"), fact("usr"), fact("shadow"))),
		require(count > 0 && count < 16, "processes", "only the runner's own can be seen", fmt.Sprintf("%d processes can be seen", count)),
	}
}

// rangeApart reports whether all users inside are ones outside that nobody else
// is.
func rangeApart(lines []string) bool {
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return false
		}
		if outside, err := strconv.Atoi(fields[1]); err != nil || outside < 100_000 {
			return false
		}
	}
	return len(lines) > 0
}

// readBack reads the limits where the kernel keeps them, and who is limited.
func (p *patient) readBack() []finding.Finding {
	trees, err := runnersTrees()
	if err != nil && os.Geteuid() == 0 {
		return []finding.Finding{finding.Failure("limits", "mount the cgroup file system", "%v", err)}
	}
	if lacks := trees.Lacks(); os.Geteuid() != 0 && len(lacks) > 0 {
		return []finding.Finding{p.judgeLacks(lacks, err)}
	}
	found := []finding.Finding{finding.Fine("commands", "each has control groups of its own: a limit is known by whom it stopped")}
	if why := trees.Divisible(); why != nil {
		found[0] = finding.Fine("commands", "they share their runner's control groups, since %v: where several run at once, a memory or process limit can't always be told from a failure", why)
	}
	for _, l := range []struct {
		controller, v1, v2 string
		most               int64
	}{
		{"memory", "memory.limit_in_bytes", "memory.max", doctorMemoryMiB << 20},
		{"pids", "pids.max", "pids.max", 2 * doctorProcesses}, // the agent has some beside the programs
		{"cpu", "cpu.cfs_quota_us", "cpu.max", 1 << 30},
	} {
		tree, ok := trees.Controller(l.controller)
		if !ok {
			found = append(found, finding.Failure(l.controller, "boot with the cgroup controller "+l.controller, "the kernel has no such cgroup controller"))
			continue
		}
		dir, file := filepath.Join(tree.Mount, sandbox.Group(p.group, p.runner)), l.v1
		members, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if agent := filepath.Join(dir, cgroup.Agent); tree.V2 && isDir(agent) {
			members, _ = os.ReadFile(filepath.Join(agent, "cgroup.procs"))
		}
		if commands := filepath.Join(dir, cgroup.Commands); (l.controller != "cpu" || tree.V2) && isDir(commands) {
			dir = commands
		}
		if tree.V2 {
			file = l.v2
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		found = append(found, judgeLimit(l.controller, file, strings.TrimSpace(string(text)), l.most, len(strings.Fields(string(members))), err))
	}
	return found
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// judgeLimit judges a limit as it was read back, which must be a number up to
// most.
func judgeLimit(controller, file, value string, most int64, members int, err error) finding.Finding {
	advice := "see that root may write to the cgroup controller " + controller + " (a container needs --privileged and --cgroupns=private)"
	first, _, _ := strings.Cut(value, " ")
	number, notNumber := strconv.ParseInt(first, 10, 64)
	switch {
	case err != nil:
		return finding.Failure(controller, advice, "the limit can't be read back: %v", err)
	case members == 0:
		return finding.Failure(controller, advice, "the runner isn't in its group")
	case notNumber != nil || number <= 0 || number > most:
		return finding.Failure(controller, advice, "%s is %q: the limit didn't take", file, value)
	}
	return finding.Fine(controller, "%s is %s, and the runner is in that group", file, value)
}

// overstep takes more than is allowed, and looks who is stopped.
func (p *patient) overstep(ctx context.Context, tell func(...finding.Finding)) error {
	for _, o := range []struct {
		name, script string
		outcome      runtime.Outcome
		good         string
	}{
		{"memory limit", "head -c 400000000 /dev/zero | tail", runtime.OutcomeMemoryLimit, "a program that took too much was ended"},
		{"process limit", "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5; do sleep 10 & done; done; wait", runtime.OutcomeProcessLimit, "a program that started too many was ended"},
	} {
		got, err := p.shell(ctx, o.script)
		if err != nil {
			return err
		}
		if got.Outcome == o.outcome {
			tell(finding.Fine(o.name, "%s", o.good))
		} else {
			tell(finding.Failure(o.name, "report this with the output of rockpool doctor --json", "a program that overstepped it ended with %s, not %s", got.Outcome, o.outcome))
		}
	}
	return nil
}
