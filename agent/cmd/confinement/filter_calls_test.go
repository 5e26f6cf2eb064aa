package confinement

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dockerRefuses are the calls in calls.txt that a container of Docker 28.5 (profiles/seccomp 0.1.0)
// with its default capabilities may not make.
const dockerRefuses = `_sysctl acct add_key afs_syscall arch_specific_syscall bpf clock_settime clone3 create_module delete_module
	fanotify_init file_getattr file_setattr finit_module fsconfig fsmount fsopen fspick get_kernel_syms get_mempolicy getpmsg
	init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl listns
	lookup_dcookie lsm_get_self_attr lsm_list_modules lsm_set_self_attr mbind migrate_pages mount mount_setattr move_mount
	move_pages nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise
	putpmsg query_module quotactl quotactl_fd reboot request_key rseq_slice_yield security set_mempolicy
	set_mempolicy_home_node setdomainname sethostname setns settimeofday swapoff swapon sysfs syslog tuxcall umount2 unshare
	uprobe uselib userfaultfd ustat vhangup vserver`

// word names a judgement in the tables.
func word(j judgement) string {
	switch {
	case j > byArguments:
		return "by arguments"
	case j == allowed:
		return "allowed"
	case j == refused:
		return "EPERM"
	}
	return "ENOSYS"
}

// testdata/calls.txt must list the filter's decision about each call, and the filter must decide so
// for each number. UPDATE=yes writes the file.
func TestFilterMatchesItsList(t *testing.T) {
	x86, arm := callNumbers(t, "amd64"), callNumbers(t, "arm64")
	here := map[string]map[string]uint32{"amd64": x86, "arm64": arm}[runtime.GOARCH]
	told := toldCalls(t)
	own, forks := judgements(false), judgements(true)
	all := maps.Clone(x86)
	maps.Copy(all, arm)
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		said, known := told[name], false
		if number, is := here[name]; is {
			said, known = word(own[number]), true
		}
		if !known && said == "" {
			said = word(unlisted)
		}
		fmt.Fprintf(&rows, "%s\t%s\t%s\t%s\n", name, numberIn(x86, name), numberIn(arm, name), said)
	}
	const head = "# call, its numbers on x86-64 and arm64, and what the filter says of it; written by TestFilterMatchesItsList\n"
	update(t, "testdata/calls.txt", head+rows.String())

	// The generated filters decide the same, for this architecture and the other one.
	judgesAll(t, "here", architecture, &own)
	judgesAll(t, "the agent's own", architecture, &forks)
	other, arch := arm, uint32(unix.AUDIT_ARCH_AARCH64)
	if runtime.GOARCH == "arm64" {
		other, arch = x86, unix.AUDIT_ARCH_X86_64
	}
	var elsewhere table
	for name, number := range other {
		if is, known := here[name]; known {
			elsewhere[number] = own[is]
		}
	}
	judgesAll(t, "elsewhere", arch, &elsewhere)
}

// judgesAll checks all numbers.
func judgesAll(t *testing.T, what string, arch uint32, judged *table) {
	t.Helper()
	code := assemble(arch, judged, notify)
	if len(code) > codeSize {
		t.Errorf("%s: %d instructions", what, len(code))
	}
	for number := range uint32(2 * tableSize) {
		j := unlisted
		if number < tableSize {
			j = judged[number]
		}
		// Each judgement by arguments, with arguments that it allows and refuses.
		yes, no := uint32(allow), unknown
		good, bad := make([]uint64, 5), make([]uint64, 5)
		at := func(argument int, value uint64, result uint32) { bad[argument], no = value, result }
		switch j {
		case allowed:
			no = allow
		case refused:
			yes, no = refuse, refuse
		case unlisted:
			yes = unknown
		case byFlags:
			at(0, unix.CLONE_NEWNET, refuse)
		case byRequest:
			at(1, unix.TIOCLINUX, refuse)
		case byPersona:
			at(0, 0x0400000, refuse) // READ_IMPLIES_EXEC
		case byFamily:
			good[0], good[1] = unix.AF_INET, unix.SOCK_STREAM
			at(0, unix.AF_PACKET, noFamily)
		case byPair:
			good[0] = unix.AF_UNIX
			at(0, unix.AF_INET, noSupport)
		case byOption:
			at(1, unix.SOL_SOCKET, refuse)
			bad[2] = unix.SO_ATTACH_FILTER
		case byOperation:
			good[0] = unix.SECCOMP_GET_ACTION_AVAIL
			at(0, unix.SECCOMP_SET_MODE_FILTER, invalid)
		case byControl:
			at(0, unix.PR_SET_SECCOMP, invalid)
		case byAdvice:
			at(3, unix.FADV_DONTNEED, ignore)
		case byMapping:
			at(3, unix.MAP_HUGETLB|unix.MAP_ANONYMOUS, noMemory)
		case byFile:
			at(1, unix.MFD_HUGETLB, noMemory)
		case bySegment:
			at(2, hugeSegment, noMemory)
		case byLimit:
			at(0, unix.RLIMIT_CORE, ignore)
		case byNewLimit:
			at(1, unix.RLIMIT_CORE, ignore)
			bad[2] = 1
		case byCreation:
			yes = noSupport
			at(4, 1<<31, invalid)
		case byCommand:
			at(1, unix.F_OFD_SETLKW, invalid)
		default:
			t.Fatalf("%s: call %d is judged as nobody knows", what, number)
		}
		if got := verdict(t, code, arch, number, good...); got != yes {
			t.Errorf("%s: call %d is %#x, want %#x", what, number, got, yes)
		}
		if got := verdict(t, code, arch, number, bad...); got != no {
			t.Errorf("%s: call %d with %v is %#x, want %#x", what, number, bad, got, no)
		}
	}
}

// The lists in docs/security.md must agree with the filter. UPDATE=yes writes them.
func TestFilterIsDocumented(t *testing.T) {
	x86, arm, told := callNumbers(t, "amd64"), callNumbers(t, "arm64"), toldCalls(t)
	docker := strings.Fields(dockerRefuses)
	for _, name := range docker {
		if told[name] == "" {
			t.Errorf("there is no call %s", name)
		}
	}
	lists := map[string][]string{}
	add := func(list, name string) { lists[list] = append(lists[list], "`"+name+"`") }
	for _, name := range slices.Sorted(maps.Keys(told)) {
		add(told[name], name)
		switch through, there := !strings.HasPrefix(told[name], "E"), !slices.Contains(docker, name); {
		case through && !there:
			add("more", name)
		case !through && there:
			add("less", name)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "x86-64 has %d calls, arm64 %d. Docker's profile is that of Docker 28.5 with its default capabilities.\n\n", len(x86), len(arm))
	text.WriteString("| answer | how many | calls |\n|---|---|---|\n")
	row := func(answer, list string) {
		calls := "none"
		if len(lists[list]) > 0 {
			calls = strings.Join(lists[list], ", ")
		}
		fmt.Fprintf(&text, "| %s | %d | %s |\n", answer, len(lists[list]), calls)
	}
	row("allowed with any arguments", "allowed")
	row("checked by their arguments", "by arguments")
	row("EPERM", "EPERM")
	row("ENOSYS, as for every number without a name", "ENOSYS")
	row("allowed here, not by Docker's profile", "more")
	row("allowed by Docker's profile, not here", "less")

	path := "../../../docs/security.md"
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- written by TestFilterIsDocumented -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(string(document), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the lists", path)
	}
	update(t, path, before+begin+text.String()+end+after)
}

// update writes a file with UPDATE=yes. Otherwise it fails if the file differs.
func update(t *testing.T, path, want string) {
	t.Helper()
	have, err := os.ReadFile(path)
	if string(have) == want {
		return
	}
	if os.Getenv("UPDATE") != "yes" {
		t.Fatalf("%s isn't what the filter says (%v): UPDATE=yes go test -run TestFilterIs ./agent/cmd/confinement", path, err)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// toldCalls returns the content of calls.txt.
func toldCalls(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(fields) == 4 {
			told[fields[0]] = fields[3]
		}
	}
	return told
}

func numberIn(numbers map[string]uint32, name string) string {
	if number, is := numbers[name]; is {
		return strconv.Itoa(int(number))
	}
	return "-"
}

// callNumbers returns the numbers of an architecture's calls in golang.org/x/sys.
func callNumbers(t *testing.T, arch string) map[string]uint32 {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]uint32{}
	line := regexp.MustCompile(`^\s*SYS_(\w+)\s*=\s*(\d+)$`)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if m := line.FindStringSubmatch(lines.Text()); m != nil {
			number, err := strconv.ParseUint(m[2], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			numbers[strings.ToLower(m[1])] = uint32(number)
		}
	}
	return numbers
}
