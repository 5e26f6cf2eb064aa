package nomad

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// A driverBed is the server of a driver, with one environment.
type driverBed struct {
	bed.Bed
	nomad  *nomadtest.Nomad
	driver string
}

func (p driverBed) claim(t *testing.T, environment string, input object) string {
	t.Helper()
	all := object{"id": environment, "poolSize": 0, "resources": object{"memoryMiB": 96, "cpuMHz": 50, "processes": 32, "workspaceMiB": 16}}
	for key, value := range input {
		all[key] = value
	}
	p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": all}, nil)
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	p.Call(t, `mutation($id: ID!) { claimRunner(input: {environmentId: $id, waitFor: 60}) { runner { id } } }`, object{"id": environment}, &out)
	return out.ClaimRunner.Runner.ID
}

// eachDriver runs a test on each driver that isolates, with the fields that environments need
// there.
func eachDriver(t *testing.T, test func(t *testing.T, p driverBed, environment object)) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker", "exec"}, Volumes: true})
	for driver, image := range map[string]string{"docker": nomadtest.Image, "exec": runtime.DefaultImage} {
		t.Run(driver, func(t *testing.T) {
			settings := newNomadConfig(t, n)
			settings.Nomad.Driver, settings.Nomad.Prefix, settings.Nomad.NoNetworkMode = driver, "rockpool-"+driver, "host"
			b, _ := bed.ServeHere(t, settings)
			test(t, driverBed{b, n, driver}, object{"image": image, "isolation": "CLUSTER"})
		})
	}
}

// limitOfProcesses returns the kernel's limit for a runner, as the machine sees it.
func (p driverBed) limitOfProcesses(t *testing.T, runner string) string {
	t.Helper()
	allocations, _, err := p.nomad.API().Jobs().Allocations("rockpool-"+p.driver+"-runner-"+runner, true, nil)
	if err != nil || len(allocations) != 1 {
		t.Fatalf("%v, %v", allocations, err)
	}
	names := []string{allocations[0].ID}
	if p.driver == "docker" {
		names = nil
		all, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/pids", filepath.Base(p.nomad.Dir()), "*"))
		for _, dir := range all {
			names = append(names, filepath.Base(dir))
		}
	}
	limits := ""
	for _, name := range names {
		for _, pattern := range []string{"/sys/fs/cgroup/pids/*/" + name + "*/pids.max", "/sys/fs/cgroup/*/" + name + "*/pids.max"} {
			found, _ := filepath.Glob(pattern)
			for _, file := range found {
				text, _ := os.ReadFile(file)
				limits += strings.TrimSpace(string(text)) + " "
			}
		}
	}
	return limits
}

// TestE2ENomadReportsWhichLimitWasReached: an execution that reaches a limit of its runner ends
// with that cause, as on one machine, and its usage is counted.
func TestE2ENomadReportsWhichLimitWasReached(t *testing.T) {
	eachDriver(t, func(t *testing.T, p driverBed, environment object) {
		runner := p.claim(t, "limits", environment)
		const most = 32 + 32 // and the agent's threads
		if got := p.limitOfProcesses(t, runner); !strings.Contains(got, fmt.Sprint(most)) {
			t.Fatalf("the limits of processes here are %q: nothing is tried without %d", got, most)
		}
		for _, test := range []struct {
			script  string
			outcome runtime.Outcome
		}{
			{"head -c 300000000 /dev/zero | tail -c 200000000 >/dev/null", "MEMORY_LIMIT"},
			{"i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; wait", "PROCESS_LIMIT"}, // at most a hundred
			{"exit 3", "EXITED"},
		} {
			r := p.Shell(t, runner, test.script)
			if r.Outcome != test.outcome {
				t.Errorf("%s: %s: %+v", test.script, r.Outcome, r)
			}
		}
		p.NamesEveryLimit(t, runner, 96, 32)
		// A file in memory belongs to no process. Memory used before doesn't belong to this execution.
		r := p.Shell(t, runner, "head -c 12000000 /dev/zero >f; sleep 3 & sleep 3 & sleep 3; rm f") // long enough for about thirty measurements
		var used struct {
			Execution struct {
				Usage struct{ PeakMemory, PeakProcesses, BytesWritten *int64 }
			}
		}
		p.Call(t, `query($id: ID!) { execution(id: $id) { usage { peakMemory peakProcesses bytesWritten } } }`, object{"id": r.Id}, &used)
		if u := used.Execution.Usage; u.PeakMemory == nil || *u.PeakMemory < 8_000_000 || u.PeakProcesses == nil || *u.PeakProcesses < 4 || u.BytesWritten == nil {
			text, _ := json.Marshal(u)
			t.Errorf("it used %s", text)
		}
	})
}

// TestE2ENomadUsageWhileItRuns: a running program's memory is shown next to its runner's limit.
func TestE2ENomadUsageWhileItRuns(t *testing.T) {
	eachDriver(t, func(t *testing.T, p driverBed, environment object) {
		runner := p.claim(t, "usage", environment)
		id := p.Start(t, object{"runnerId": runner, "shell": "head -c 12000000 /dev/zero >f; echo holds; sleep 1000", "timeLimit": 600})
		var got struct {
			Execution struct {
				UsageNow *struct {
					Memory, Processes *int64
					OutputBytes       int64
				}
				Runner struct {
					Usage *struct {
						Memory      *int64
						MemoryLimit int64
					}
				}
			}
		}
		wait.For(t, "what it holds is seen", func() bool {
			p.Call(t, `query($id: ID!) { execution(id: $id) { usageNow { memory processes outputBytes } runner { usage { memory memoryLimit } } } }`, object{"id": id}, &got)
			x, r := got.Execution.UsageNow, got.Execution.Runner.Usage
			return x != nil && r != nil && x.Memory != nil && *x.Memory >= 8_000_000 && x.Processes != nil && *x.Processes >= 2 && x.OutputBytes == 6 &&
				r.Memory != nil && *r.Memory >= 8_000_000 && r.MemoryLimit == 96<<20
		})
		p.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": id}, nil)
	})
}

// TestE2ENomadProgramsGetImageSettings: programs get the variables, PATH and working
// directory of their image, and none of Nomad's.
func TestE2ENomadProgramsGetImageSettings(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker"}})
	settings := newNomadConfig(t, n)
	settings.Nomad.Driver = "docker"
	b, _ := bed.ServeHere(t, settings)
	p := driverBed{b, n, "docker"}
	runner := p.claim(t, "image", object{"image": nomadtest.ConfiguredImage, "isolation": "CLUSTER", "variables": []object{{"name": "OURS", "value": "1"}}})
	want := "/srv/app\n1000\nASAN_OPTIONS=detect_leaks=0\nCARGO_NET_OFFLINE=true\nGOPROXY=off\nGOTOOLCHAIN=local\nGREETING=hello\nHOME=/tmp/home\nLANG=de_DE.UTF-8\nLOGNAME=runner\n" +
		"LSAN_OPTIONS=detect_leaks=0\nNPM_CONFIG_FETCH_RETRIES=0\nOMPI_MCA_btl_sm_single_copy_mechanism=none\nOMPI_MCA_btl_vader_single_copy_mechanism=none\nOURS=1\n" +
		"PATH=/opt/tool/bin:/usr/bin:/bin\nPIP_RETRIES=0\nPWD=/srv/app\nPYTHONUNBUFFERED=1\nSHELL=/bin/sh\nUSER=runner\nUV_OFFLINE=1\n"
	if r := p.Shell(t, runner, "pwd; id -u; env | grep -v '^_=' | sort"); r.Stream("STDOUT") != want {
		t.Errorf("%s%s", r.Stream("STDOUT"), r.Stream("STDERR"))
	}
	if r := p.Shell(t, runner, "stat -c %a /data; echo x >/data/f && echo written"); r.Stream("STDOUT") != "700\n" {
		t.Errorf("its volume, which has no bound, is open: %s", r.Stream("STDOUT"))
	}
}

// TestE2ENomadBoundsWhatProgramsWrite: every directory that programs can write to has a limit.
func TestE2ENomadBoundsWhatProgramsWrite(t *testing.T) {
	eachDriver(t, func(t *testing.T, p driverBed, environment object) {
		runner := p.claim(t, "disk", environment)
		writable := p.Shell(t, runner, `for at in $(find / -path /proc -prune -o -type d -print 2>/dev/null); do
			if (echo x >$at/.probe) 2>/dev/null; then rm -f $at/.probe; echo $at; fi; done; ls -d /dev/mqueue 2>/dev/null`)
		for at := range strings.FieldsSeq(writable.Stream("STDOUT")) {
			switch at {
			case "/workspace", "/tmp", "/tmp/home", "/dev/shm", "/dev/mqueue":
			default:
				t.Errorf("programs can write to %s", at)
			}
		}
		for dir, room := range map[string]int{"/workspace": 16 << 20, "/tmp": 32 << 20} {
			r := p.Shell(t, runner, "head -c 60000000 /dev/zero >"+dir+"/f; stat -c %s "+dir+"/f; rm "+dir+"/f")
			if got := r.Stream("STDOUT"); got != fmt.Sprintln(room) {
				t.Errorf("%s holds %s %s", dir, got, r.Stream("STDERR"))
			}
		}
	})
}

// TestE2ENomadExecutesInTheWorkspace: if clients allow volumes, programs compiled in a runner of
// the driver docker can be executed there.
func TestE2ENomadExecutesInTheWorkspace(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker"}, Volumes: true})
	settings := newNomadConfig(t, n)
	settings.Nomad.Driver, settings.Nomad.Workspace = "docker", "volume"
	b, _ := bed.ServeHere(t, settings)
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	found, err := server.ExamineNomad(t.Context(), settings)
	if err != nil || !slices.ContainsFunc(found, func(f health.Finding) bool { return f.Name == "workspace" && f.Status == health.OK }) {
		t.Errorf("doctor says %+v, %v", found, err)
	}
	p := driverBed{b, n, "docker"}
	runner := p.claim(t, "volume", object{"image": nomadtest.Image, "isolation": "CLUSTER"})
	for dir, room := range map[string]int{"/workspace": 16 << 20, "/tmp": 32 << 20} {
		script := "cd " + dir + "; printf '#!/bin/sh\\necho ran\\n' >s; chmod +x s; ./s; cp /bin/echo e; ./e also; head -c 60000000 /dev/zero >f 2>/dev/null; stat -c %s f; rm f"
		r := p.Shell(t, runner, script)
		out := strings.Fields(r.Stream("STDOUT"))
		if len(out) != 3 || out[0] != "ran" || out[1] != "also" || out[2] >= fmt.Sprint(room) || len(out[2]) > 8 { // the rest is the program's
			t.Errorf("%s: %q %s", dir, out, r.Stream("STDERR"))
		}
	}
}
