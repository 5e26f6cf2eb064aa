package host

import (
	"fmt"
	"slices"
	"testing"
)

func TestCoveredProc(t *testing.T) {
	const ordinary = "22 28 0:20 / /sys rw - sysfs sysfs rw\n23 28 0:21 / /proc rw - proc proc rw\n35 23 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n36 23 0:31 / /proc/fs/nfsd rw - nfsd nfsd rw\n40 28 0:4 / /srv/proc/x rw - tmpfs tmpfs rw\n"
	for name, test := range map[string]struct {
		mounts string
		want   []string
	}{
		"an ordinary machine": {ordinary, nil},
		"a container":         {ordinary + "50 23 0:5 /null /proc/kcore rw - tmpfs tmpfs rw\n51 23 0:6 / /proc/acpi ro - tmpfs tmpfs ro\n", []string{"/proc/kcore", "/proc/acpi"}},
	} {
		if got := coveredProc(test.mounts); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestLimitationsAreNamedSeparately(t *testing.T) {
	h := &Host{rootless: rootless{losses: []string{"no users", "no network"}}, inherited: "the nice value is 5"}
	want := []string{"without root, runners have less isolation: no users; no network", "the nice value is 5"}
	if got := h.Limitations(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLackingCapabilities(t *testing.T) {
	for status, want := range map[string]string{
		"Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n": "[]",
		"Name:\tx\nCapEff:\t000001ffffdfffff\n":             "[CAP_SYS_ADMIN]",
		"Name:\tx\nCapEff:\t000001ffffdfff3e\n":             "[CAP_CHOWN CAP_SETGID CAP_SETUID CAP_SYS_ADMIN]",
		"Name:\tx\n":                                        "[]",
	} {
		if got := fmt.Sprint(lackingCapabilities(status)); got != want {
			t.Errorf("%q: got %s, want %s", status, got, want)
		}
	}
}
