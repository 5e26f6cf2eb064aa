package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dockerAllows are those of the calls that are refused here which Docker's default
// profile lets a container of default capabilities make.
var dockerAllows = []string{"adjtimex", "chroot", "clock_adjtime", "modify_ldt", "name_to_handle_at", "process_vm_readv", "process_vm_writev", "ptrace", "vmsplice"}

// TestFilterIsDocumented keeps the list in docs/security.md what the filter does.
// UPDATE=yes writes it.
func TestFilterIsDocumented(t *testing.T) {
	names := callNames(t)
	code := denyList(false)
	var refused, both []string
	allowed := 0
	for number := range uint32(lastKnown + 1) {
		name, known := names[number]
		if !known {
			continue // a gap, which no kernel fills
		}
		switch got := verdict(t, code, architecture, number, 0, 0, 0); {
		case got == refuse && slices.Contains(dockerAllows, name):
			both = append(both, "`"+name+"`")
		case got == refuse:
			refused = append(refused, "`"+name+"`")
		case got == allow && !slices.Contains(byArgument, number):
			allowed++
		}
	}
	if len(both) != len(dockerAllows) {
		t.Errorf("of %q %q are refused", dockerAllows, both)
	}
	slices.Sort(refused)
	slices.Sort(both)
	want := fmt.Sprintf("Of the %d calls of x86-64 up to number %d, %d are let through whatever their arguments. Refused with EPERM, as in Docker's default profile:\n\n%s.\n\nRefused with EPERM, though Docker's default profile lets them through:\n\n%s.\n",
		len(names), lastKnown, allowed, strings.Join(refused, ", "), strings.Join(both, ", "))
	path := "../../docs/security.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- written by TestFilterIsDocumented -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(string(text), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the list", path)
	}
	if old == want {
		return
	}
	if os.Getenv("UPDATE") != "yes" {
		t.Fatalf("%s isn't what the filter does: UPDATE=yes go test -run TestFilterIsDocumented ./agent/cmd", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// byArgument are the calls that are judged by their arguments, too; the document
// names them.
var byArgument = []uint32{unix.SYS_CLONE, unix.SYS_IOCTL, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR}

// callNames returns the names of calls, as golang.org/x/sys knows them.
func callNames(t *testing.T) map[uint32]string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_amd64.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint32]string{}
	line := regexp.MustCompile(`^\s*SYS_(\w+)\s*=\s*(\d+)$`)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if m := line.FindStringSubmatch(lines.Text()); m != nil {
			number, err := strconv.ParseUint(m[2], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			names[uint32(number)] = strings.ToLower(m[1])
		}
	}
	return names
}
