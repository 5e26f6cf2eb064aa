package sandboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Without returns the agent and rockpool-sandbox with one defence removed, so that a test can see
// an attack succeed. The released programs have no switch for that. These are built from edited
// sources, which exist only during the build (go build -overlay).
func Without(t testing.TB, defence string) (agent, helper []byte) {
	t.Helper()
	return fill(t, weakAgent.built(t), defence), helperWithout(t, defence)
}

// helperWithout returns only the rockpool-sandbox of [Without].
func helperWithout(t testing.TB, defence string) []byte {
	t.Helper()
	return fill(t, weakHelper.built(t), defence)
}

// fill writes the name of the missing defence into a program.
func fill(t testing.TB, program []byte, defence string) []byte {
	t.Helper()
	const width = 64 // of the values in the programs
	const name = "without:"
	at := []byte(name + strings.Repeat(".", width))
	if bytes.Count(program, at) != 1 {
		t.Fatalf("a program has no place for the name of the missing defence %q", defence)
	}
	return bytes.Replace(program, at, []byte(name+defence+strings.Repeat(".", width-len(defence))), 1)
}

// A weak program is one whose defences can be removed.
type weak struct {
	program
	name, source, environment string
	flags                     []string
	edits                     []edit
}

var (
	weakAgent = weak{
		name: "agent", source: "./agent/cmd", environment: "CGO_ENABLED=0", flags: []string{"-trimpath", "-ldflags=-s -w"},
		edits: agentEdits,
	}
	weakHelper = weak{
		name: "rockpool-sandbox", source: "./local/sandbox/cmd", environment: "CGO_ENABLED=1",
		flags: []string{"-trimpath", "-ldflags=-s -w -extldflags=-static", "-tags", "netgo osusergo"},
		edits: helperEdits,
	}
)

// WriteWithout builds the programs of [Without] into a directory, for ROCKPOOL_PROGRAMS on a
// machine that can't build.
func WriteWithout(dir string) error {
	for _, w := range []*weak{&weakAgent, &weakHelper} {
		data, said, err := buildWith(w.edits, w.source, w.environment, w.flags)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, w.name+"-without"), data, 0o755)
		}
		if err != nil {
			return fmt.Errorf("build %s with edits: %w\n%s", w.source, err, said)
		}
	}
	return nil
}

// An edit replaces text that occurs once in a file. If old is "", the file is new.
type edit struct{ file, old, with string }

// without is the source of the variable with the missing defence, which fill sets.
const without = `package %s

import "strings"

var missing = "without:" + "%s"

func isWithout(defence string) bool {
	return strings.TrimRight(strings.TrimPrefix(missing, "without:"), ".") == defence
}
`

// withoutFile returns the source of the variable for a package.
func withoutFile(of string) string {
	return strings.Replace(fmt.Sprintf(without, of, strings.Repeat(".", 64)), `" + "`, "", 1)
}

// asksWithout is the source that reads it, for a package of the agent that is edited.
func asksWithout(of string) string {
	return fmt.Sprintf(`package %s

import "github.com/rockpool/rockpool/agent/cmd/without"

var isWithout = without.Is
`, of)
}

// agentEdits make defences of the agent depend on isWithout.
var agentEdits = []edit{
	{"agent/cmd/without/without.go", "", withoutFile("without") + `
func Is(defence string) bool { return isWithout(defence) }
`},
	{"agent/cmd/confinement/without.go", "", asksWithout("confinement") + `
func loadUnlessWithout(forks, ownNetwork bool) error {
	if unfiltered() {
		return nil
	}
	return loadFilters(forks, ownNetwork && !isWithout("netlink"))
}

// unfiltered reports whether there is no filter: without "privileges" it can't be loaded.
func unfiltered() bool { return isWithout("filter") || isWithout("privileges") }
`},
	{"agent/cmd/executor/without.go", "", asksWithout("executor")},
	{"agent/cmd/launch/without.go", "", asksWithout("launch")},
	{"agent/cmd/process/without.go", "", asksWithout("process")},
	{"agent/cmd/warm/without.go", "", strings.Replace(asksWithout("warm"), "import ", `import "strings"

import `, 1) + `
// weakened is the zygote's script without the missing defence.
func weakened(script string) string {
	for defence, line := range map[string]string{
		"checked": "os.setresuid(user, user, user)", "descriptors": "close_above(3)", "forked": "r.python.PyOS_AfterFork_Child()",
	} {
		if isWithout(defence) {
			script = strings.Replace(script, line, "pass", 1)
		}
	}
	if isWithout("checked") || isWithout("obedience") {
		script = strings.Replace(script, "r.libc.syscall(*no_capabilities) != 0", "False", 1)
	}
	if isWithout("obedience") {
		script = strings.Replace(script, "os.setresuid(user, user, user)", "os.setresuid(user, user, -1)", 1)
	}
	return script
}
`},
	{"agent/cmd/warm/warm.go", `"-c", script}`, `"-c", weakened(script)}`},
	{"agent/cmd/warm/warm.go", `	const user = confinement.ZygoteUser`, `	user := uint32(confinement.ZygoteUser)
	if isWithout("zygote") {
		user = confinement.User
	}`},
	{"agent/cmd/warm/zygote.go", `	user := strconv.Itoa(confinement.ZygoteUser) + "\t"`, `	user := strconv.Itoa(confinement.ZygoteUser) + "\t"
	if isWithout("zygote") {
		user = strconv.Itoa(int(confinement.User)) + "\t"
	}`},
	{"agent/cmd/warm/check.go", `func check(mine, is map[string][]byte, pid int, who *syscall.Credential) error {`, `func check(mine, is map[string][]byte, pid int, who *syscall.Credential) error {
	if isWithout("checked") {
		return nil
	}`},
	{"agent/cmd/process/warm.go", `		p.cold = err.Error()`, `		if isWithout("fallback") {
			return true, nil
		}
		p.cold = err.Error()`},
	{"agent/cmd/confinement/confine.go", `	try("seccomp", loadFilters(`, `	try("seccomp", loadUnlessWithout(`},
	{"agent/cmd/confinement/filter.go", `	return unix.SockFprog{Len: uint16(len(commandFilter))`, `	if unfiltered() {
		return unix.SockFprog{}
	}
	return unix.SockFprog{Len: uint16(len(commandFilter))`},
	{"agent/cmd/launch/fork.go", `	if _, _, errno = syscall.RawSyscall(unix.SYS_SECCOMP,`, `	if c.filter.Len == 0 {
	} else if _, _, errno = syscall.RawSyscall(unix.SYS_SECCOMP,`},
	{"agent/cmd/launch/fork.go", `	if files > 0 {`, `	if files > 0 && !isWithout("openfiles") {`},
	{"agent/cmd/confinement/filter_arguments.go", `	p.load(argument(1))
	p.mask(socketType)`, `	if isWithout("protocols") {
		p.code = append(p.code, ret(allow))
		return
	}
	p.load(argument(1))
	p.mask(socketType)`},
	{"agent/cmd/process/excessive.go", `	if p.starter.Guest != nil {`, `	if isWithout("uncounted") || p.starter.Guest != nil {`},
	{"agent/cmd/process/process.go", `	if r := p.starter.reaper; p.starter.OwnIPC {`, `	if r := p.starter.reaper; p.starter.OwnIPC && !isWithout("segments") {`},
	{"agent/cmd/confinement/confine.go", `	try("no new privileges", refusePrivileges())`, `	if !isWithout("privileges") {
		try("no new privileges", refusePrivileges())
	}`},
	{"agent/cmd/confinement/confine.go", `	try("not dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))`, `	if isWithout("hidden") { // its command of root has less, which hides it too
		rootCapabilities = append(rootCapabilities, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP)
		try("dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	} else {
		try("not dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	}`},
	{"agent/cmd/confinement/thread.go", `		return dropBounding(thisThread)
	})
}

// startThread`, `		if isWithout("bounding") {
			return nil
		}
		return dropBounding(thisThread)
	})
}

// startThread`},
	{"agent/cmd/process/starter.go", `	attr := &launch.Attr{`, `	if isWithout("user") {
		who = 0
	}
	attr := &launch.Attr{`},
	{"agent/cmd/process/members.go", `	if p.alone() {
		return p.group.Members()`, `	if isWithout("mark") {
		if s, err := proc.ReadStatus(p.pid); err == nil && !s.Dead {
			return []int{p.pid}, true
		}
		return nil, true
	}
	if p.alone() {
		return p.group.Members()`},
	{"agent/cmd/executor/executor.go", `	if err := unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil {`, `	if isWithout("descriptors") {
		for fd := 4; fd < 32; fd++ {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		}
	} else if err := unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil {`},
}

// helperEdits make defences of rockpool-sandbox depend on isWithout.
var helperEdits = slices.Concat(firewallEdits, faultEdits, []edit{
	{"local/sandbox/cmd/without.go", "", withoutFile("main")},
	{"local/sandbox/cmd/weaken.go", "", `package main

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

func weaken(s *specs.Spec) {
	share := func(kind specs.LinuxNamespaceType) {
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
	}
	honour := func(barred ...string) {
		for i := range s.Mounts {
			s.Mounts[i].Options = slices.DeleteFunc(slices.Clone(s.Mounts[i].Options), func(o string) bool { return slices.Contains(barred, o) })
		}
	}
	switch {
	case isWithout("users"):
		s.Linux.UIDMappings[0].HostID, s.Linux.GIDMappings[0].HostID = spec.FirstUID, spec.FirstUID
	case isWithout("network"):
		share(specs.NetworkNamespace)
	case isWithout("ipc"):
		share(specs.IPCNamespace)
	case isWithout("name"):
		share(specs.UTSNamespace)
		s.Hostname = ""
	case isWithout("groups"):
		share(specs.CgroupNamespace)
	case isWithout("clock"):
		share(specs.TimeNamespace)
		s.Linux.TimeOffsets = nil
	case isWithout("files"):
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp", Source: "/tmp", Options: []string{"rbind", "ro"}}) // other tests may have mounts in there
	case isWithout("masked"):
		s.Linux.MaskedPaths = nil
	case isWithout("mounts"):
		honour("nosuid", "nodev")
	case isWithout("terminals"):
		honour(fmt.Sprintf("max=%d", spec.Terminals))
	case isWithout("accounts"):
		s.Process.Rlimits = nil
	case isWithout("privileges"):
		s.Process.NoNewPrivileges = false
		honour("nosuid") // it stands behind
	}
}
`},
	{"local/sandbox/cmd/create.go", `	limits, err := spec.Limits(s, c.Machine.Lacks)`, `	weaken(s)
	limits, err := spec.Limits(s, c.Machine.Lacks)`},
	{"local/sandbox/cmd/bound.go", `	if errno := C.write_in(`, `	if isWithout("network") { // it is the machine's
	} else if errno := C.write_in(`},
	{"local/sandbox/cmd/bound.go", `	namespace, err := unix.Open(`, `	if isWithout("inotify") {
		return nil
	}
	namespace, err := unix.Open(`},
	{"local/sandbox/cmd/make.go", `	image := func() (*os.File, error) {`, `	if isWithout("inotify") || isWithout("network") { // in the latter case they are the machine's
		s.Settings = nil
	}
	image := func() (*os.File, error) {`},
	{"local/sandbox/cmd/bound.go", `	disks, err := cgroup.Disks("/usr", c.Images)
`, `	if isWithout("disks") {
		c.DiskRead = 0
	}
	if isWithout("buffers") {
		q.Resources.MemoryMiB *= 1024
	}
	disks, err := cgroup.Disks("/usr", c.Images)
`},
})

// built builds the program. On a machine that can't build, it is in the directory of the others,
// where scripts/vm wrote it.
func (w *weak) built(t testing.TB) []byte {
	t.Helper()
	if dir := os.Getenv("ROCKPOOL_PROGRAMS"); dir != "" {
		data, err := os.ReadFile(filepath.Join(dir, w.name+"-without"))
		if err != nil {
			t.Fatalf("ROCKPOOL_PROGRAMS lacks a program without a defence; sandboxtest/without writes it: %v", err)
		}
		return data
	}
	w.once.Do(func() { w.data, w.said, w.err = buildWith(w.edits, w.source, w.environment, w.flags) })
	if w.err != nil {
		t.Fatalf("build %s with edits: %v\n%s", w.source, w.err, w.said)
	}
	return w.data
}

var editing sync.Mutex // builds are large: one at a time

// apply returns the edited texts by file. It changes no file.
func apply(edits []edit, top string) (texts map[string]string, err error) {
	texts = map[string]string{}
	for _, e := range edits {
		if e.old == "" {
			texts[e.file] = e.with
			continue
		}
		if texts[e.file] == "" {
			text, err := os.ReadFile(filepath.Join(top, e.file))
			if err != nil {
				return nil, err
			}
			texts[e.file] = string(text)
		}
		if strings.Count(texts[e.file], e.old) != 1 {
			return nil, fmt.Errorf("%s doesn't contain this text exactly once: %q; update the edit in test/sandboxtest", e.file, e.old)
		}
		texts[e.file] = strings.Replace(texts[e.file], e.old, e.with, 1)
	}
	return texts, nil
}

// buildWith builds a program from the sources with edits. The sources on disk stay unchanged. said
// is the output of the build.
func buildWith(edits []edit, source, environment string, flags []string) (data, said []byte, err error) {
	editing.Lock()
	defer editing.Unlock()
	dir, err := os.MkdirTemp("", "rp-without-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	top := sources()
	texts, err := apply(edits, top)
	if err != nil {
		return nil, nil, err
	}
	replace := map[string]string{}
	for file, text := range texts {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return nil, nil, err
		}
		replace[filepath.Join(top, file)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return nil, nil, err
	}
	out := filepath.Join(dir, "program")
	args := append([]string{"build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", out}, flags...)
	cmd := exec.Command("go", append(args, source)...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), environment)
	if said, err = cmd.CombinedOutput(); err != nil {
		return nil, said, err
	}
	data, err = os.ReadFile(out)
	return data, said, err
}
