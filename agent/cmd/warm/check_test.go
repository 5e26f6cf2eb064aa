package warm

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A child that lacks any attribute of a command is rejected.
func TestCheck(t *testing.T) {
	const pid, none = 77, "0000000000000000"
	mine := map[string][]byte{"NoNewPrivs": []byte("1"), "Seccomp": []byte("2"), "Seccomp_filters": []byte("2")}
	right := parse(fmt.Appendf(nil, `Name:	python3
Uid:	1000	1000	1000	1000
Gid:	1000	1000	1000	1000
Groups:	1000 60001 
PPid:	%d
TracerPid:	0
NSsid:	4077	77
NSpgid:	4077	77
Threads:	1
CapInh:	%[2]s
CapPrm:	%[2]s
CapEff:	%[2]s
CapBnd:	%[2]s
CapAmb:	%[2]s
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	3
`, unix.Getpid(), none))
	who := &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{1000, 60001}}
	if err := check(mine, right, pid, who); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string][]string{
		"Uid": {"1000\t1000\t0\t1000", "59999\t59999\t0\t59999", "0\t0\t0\t0"}, "Gid": {"1000\t1000\t0\t1000", "59999\t59999\t59999\t59999"},
		"Groups": {"1000", "1000 60002", "1000 59999 60001", ""}, "PPid": {"1234567"}, "TracerPid": {"5"}, "Threads": {"2"},
		"NSsid": {"4077\t76", "76", ""}, "NSpgid": {"4077\t76", ""},
		"CapInh": {"00000000000000c0", ""}, "CapPrm": {"00000000000000c0", ""}, "CapEff": {"00000000000000c0", ""}, "CapBnd": {"00000000000000c0"}, "CapAmb": {"00000000000000c0"},
		"NoNewPrivs": {"0", ""}, "Seccomp": {"0", ""}, "Seccomp_filters": {"1", ""},
	} {
		for _, value := range wrong {
			is := maps.Clone(right)
			is[name] = []byte(value)
			want := name
			switch name {
			case "Seccomp_filters":
				want = "filters"
			case "NSsid", "NSpgid":
				want = "session"
			}
			if err := check(mine, is, pid, who); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: %v", name, value, err)
			}
		}
	}
}

// FuzzHear checks that any bytes of a zygote are a message or an error.
func FuzzHear(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x05ready"))
	f.Add([]byte("\x00\x00\x00\x08failed\x00x"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x09r"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > 64<<10 { // more than the socket holds
			return
		}
		ours, theirs, err := newLink()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.close()
		if _, err := unix.Write(theirs, sent); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(theirs)
		answer, err := ours.hear("ready", time.Now().Add(time.Minute))
		text := string(sent)
		if whole := strings.HasPrefix(text, "\x00\x00\x00\x05ready"); whole != (err == nil && len(answer) == 0) && len(sent) < 10 {
			t.Errorf("%q: %q, %v", sent, answer, err)
		}
	})
}
