package languages

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/artifacts"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

func TestMain(m *testing.M) { bed.Main(m) }

// TestPrograms: the data of the suite is complete, and each difference of a platform is documented.
func TestPrograms(t *testing.T) {
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/guides/machine.md")
	if err != nil {
		t.Fatal(err)
	}
	languages, core := map[string]bool{}, 0
	for _, p := range all {
		for platform, differs := range p.On {
			if !strings.Contains(string(page), "\n| "+differs.Reason+" |") && !strings.Contains(string(page), "\n| `"+differs.Reason+"`") {
				t.Errorf("%s on %s: docs/guides/machine.md has no row %q", p.ID(), platform, differs.Reason)
			}
		}
		languages[p.Language] = true
		if p.Core {
			core++
		}
	}
	if len(all) < 150 || len(languages) < 25 || core < 40 {
		t.Errorf("%d programs in %d languages, %d in the core; want 150, 25 and 40", len(all), len(languages), core)
	}
}

// host is this machine's own programs.
func host() Platform { return Platform{Name: "host"} }

// gvisor is the same programs on a kernel of their own.
func gvisor() Platform {
	p := host()
	p.Name, p.Isolation = "gvisor", "GVISOR"
	return p
}

// selected returns the programs of the core, or the others.
func selected(t *testing.T, core bool) []Program {
	t.Helper()
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p Program) bool { return p.Core != core })
}

// TestE2ECore runs programs of the languages that scripts/needs tests installs. The virtual machine
// of make test-vm leaves out the slow ones, and those whose tools it lacks.
func TestE2ECore(t *testing.T) {
	platform, all := host(), selected(t, true)
	machine := os.Getenv("ROCKPOOL_PROGRAMS") != ""
	if machine {
		platform.Name = "vm"
		all = slices.DeleteFunc(all, func(p Program) bool { return p.Slow })
	}
	s := New(t, bed.Open(t), platform)
	ran := len(all)
	s.Run(t, all, func(t testing.TB, tool string) {
		if ran--; !machine {
			need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", tool)
		}
	})
	if ran < 40 {
		t.Errorf("%d programs ran", ran)
	}
}

// TestE2EGVisorCore runs the core with gVisor.
func TestE2EGVisorCore(t *testing.T) {
	b, _ := bed.OpenGVisor(t)
	s := New(t, b, gvisor())
	s.Run(t, selected(t, true), func(t testing.TB, tool string) {
		need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", tool)
	})
}

// TestE2EGVisorAll runs the other programs of the languages that this machine has with gVisor.
func TestE2EGVisorAll(t *testing.T) {
	need.Languages(t)
	b, srv := bed.OpenGVisor(t)
	makeCache(t, b, srv)
	s := New(t, b, gvisor())
	s.Run(t, selected(t, false), func(t testing.TB, tool string) { t.Skipf("this machine has no %s", tool) })
	artifacts.Keep(t, "languages-gvisor.txt", []byte(s.Summary()))
}

// TestE2EAll runs the other programs of the languages that this machine has.
func TestE2EAll(t *testing.T) {
	need.Languages(t)
	b := bed.Open(t)
	makeCache(t, b, bed.SharedServer.Server)
	s := New(t, b, host())
	s.Run(t, selected(t, false), func(t testing.TB, tool string) { t.Skipf("this machine has no %s", tool) })
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	times := s.Times(t, all)
	t.Log(times)
	artifacts.Keep(t, "languages.txt", []byte(s.Summary()+"\n"+times))
}
