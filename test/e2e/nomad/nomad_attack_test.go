package nomad

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/doctor"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// A nomadMachine answers package attack's questions about the machine of a Nomad.
type nomadMachine struct {
	nomad  *nomadtest.Nomad
	secret string
}

// Limited always returns an error: no attack here exhausts resources.
func (m nomadMachine) Limited(string) error { return fmt.Errorf("the limits are Nomad's") }

// Left returns nothing: Nomad removes what is left of a task.
func (m nomadMachine) Left(string) []string { return nil }

func (m nomadMachine) Received(string) bool { return false }

func (m nomadMachine) Addresses(string) (v4, v6 string) { return "nowhere", "nowhere" }

func (m nomadMachine) Changed() (changed []string) {
	beside, err := os.ReadDir(filepath.Dir(m.secret))
	if len(beside) != 1 || err != nil {
		changed = append(changed, fmt.Sprintf("beside the secret is %v, %v", beside, err))
	}
	for _, at := range []string{"/etc/attack", "/attack"} { // the target of a link in one of the attacks
		if _, err := os.Lstat(at); err == nil {
			changed = append(changed, at+" was made")
		}
	}
	return changed
}

func (m nomadMachine) Garble(ctx context.Context, runner string, bytes []byte) error {
	all, _, err := m.nomad.API().Allocations().List(&api.QueryOptions{Namespace: m.nomad.Namespace()})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a *api.AllocationListStub) bool { return strings.Contains(a.JobID, runner) })
	if i < 0 {
		return fmt.Errorf("no allocation is of runner %s", runner)
	}
	sockets, err := filepath.Glob(filepath.Join(m.nomad.Dir(), "client", "alloc", all[i].ID, "*", "secrets"))
	if err != nil || len(sockets) != 1 {
		return fmt.Errorf("the agent's socket is at %v, %w", sockets, err)
	}
	return doctor.Garble(ctx, sockets[0], bytes)
}

// TestE2EAttacksOnNomad runs the attacks that agent and API must stop in Nomad's tasks. With the
// driver docker that is all of them. With raw_exec, whose runners share the machine's files, it is
// those that are harmless if they succeed.
func TestE2EAttacksOnNomad(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker", "raw_exec"}, Volumes: true})
	for _, test := range []struct{ driver, image string }{{"docker", nomadtest.Image}, {"raw_exec", ""}} {
		t.Run(test.driver, func(t *testing.T) {
			settings := newNomadConfig(t, n)
			settings.Nomad.Driver, settings.Nomad.Prefix, settings.Nomad.Workspace = test.driver, "rockpool-"+test.driver, "volume" // what is tried is executed there
			b, _ := bed.ServeHere(t, settings)
			rows := slices.DeleteFunc(attack.Corpus(), func(a attack.Attack) bool {
				return !a.In(runtime.IsolationCluster) || test.driver == "raw_exec" && !a.Harmless()
			})
			const secret = "what no runner may see"
			dir, err := os.MkdirTemp("/var/lib", "rockpool-attack-") // runners have a /tmp of their own
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			machine := nomadMachine{nomad: n, secret: filepath.Join(dir, "secret")}
			if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(machine.secret, []byte(secret), 0o600)); err != nil { // anybody finds it, and only root reads it
				t.Fatal(err)
			}
			target := attack.Target{Server: b.Client, Tier: runtime.IsolationCluster, Outside: machine, Bait: attack.Bait{Secret: secret, Path: machine.secret}, Image: test.image, Sparing: true, NoNetwork: "it is Nomad's"}
			report, err := attack.Run(t.Context(), target, rows, func(r attack.Result) {
				if !r.Held {
					t.Errorf("%s %q (%s): %s%s\n%s", r.Class, r.Name, r.Defence, r.Why, r.Skipped, r.Seen)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d of %d held in %.1f s", report.Held, report.Tried, report.Seconds)
		})
	}
}
