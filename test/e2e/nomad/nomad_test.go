package nomad

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/test/e2e/bed"

	"go.uber.org/zap/zaptest"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// newNomadConfig returns the settings of a server on a Nomad of the tests, with the driver
// raw_exec.
func newNomadConfig(t *testing.T, n *nomadtest.Nomad) config.Config {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	settings := bed.Settings(t.TempDir(), bed.Cgroups)
	settings.Listen, settings.AdvertiseURL, settings.Cluster = n.Spare(), "http://"+n.Spare(), config.ClusterNomad
	settings.TokenFile = write("token", "correct-horse-battery")
	settings.AlertThreshold, settings.AlertTimeout = 0.5, 1
	ca, cert, key := n.TLS()
	settings.OnStop = config.StopKeeps
	with := &settings.Nomad
	with.Address, with.Namespace, with.CACert, with.ClientCert, with.ClientKey, with.Driver = n.Address(), n.Namespace(), ca, cert, key, "raw_exec"
	with.LockTTL = 120 // a busy machine may delay its renewal
	with.NodeImages = true
	if n.Token() != "" {
		settings.Nomad.TokenFile = write("nomad-token", n.Token()+"\n")
	}
	return settings
}

var onRawExec = object{"image": runtime.DefaultImage, "isolation": "NONE", "resources": object{"memoryMiB": 64, "cpuMHz": 50}}

func TestE2ENomad(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{ACL: true, TLS: true, Namespace: "pool"})
	settings := newNomadConfig(t, n)
	settings.Nomad.UIURL = "https://nomad.example.org/"
	b, stop := bed.ServeHere(t, settings)
	input := object{"id": "shell", "poolSize": 1}
	for key, value := range onRawExec {
		input[key] = value
	}
	b.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": input}, nil)
	var claimed struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	b.Call(t, `mutation { claimRunner(input: {environmentId: "shell", holder: "ada", waitFor: 60}) { runner { id } } }`, nil, &claimed)
	runner := claimed.ClaimRunner.Runner.ID
	if r := b.Shell(t, runner, "echo hi; pwd; id -u; env | grep -c -e NOMAD -e TOKEN; cat >f; ls -A"); r.Outcome != "EXITED" || r.Stream("STDOUT") != "hi\n/workspace\n1000\n0\nf\n" {
		t.Errorf("%+v", r)
	}

	// The API shows what Nomad did for a runner, and the addresses of Nomad's own pages about it.
	var told struct {
		Runner  struct{ ClusterURL string }
		Cluster struct {
			TaskEvents               []struct{ Kind string }
			Evaluations, Allocations struct {
				Nodes []struct{ RunnerID, Status, ClusterURL string }
			}
		}
	}
	wait.For(t, "its scheduling is reported", func() bool {
		b.Call(t, `query($id: ID!) { runner(id: $id) { clusterUrl } cluster { taskEvents(runnerId: $id) { kind }
			evaluations(runnerId: $id) { nodes { runnerId status clusterUrl } } allocations(runnerId: $id, status: [RUNNING]) { nodes { runnerId status } } } }`,
			object{"id": runner}, &told)
		c := told.Cluster
		return len(c.TaskEvents) > 1 && c.TaskEvents[0].Kind == "PLACED" && len(c.Evaluations.Nodes) == 1 && c.Evaluations.Nodes[0].Status == "COMPLETE" && len(c.Allocations.Nodes) == 1
	})
	if at := "https://nomad.example.org/ui/"; told.Runner.ClusterURL != at+"jobs/rockpool-runner-"+runner+"@pool" || !strings.HasPrefix(told.Cluster.Evaluations.Nodes[0].ClusterURL, at) {
		t.Errorf("%+v", told)
	}

	// Every listing shows why a runner's start waits, even while other runners are idle.
	big := object{"id": "big", "poolSize": 1, "image": runtime.DefaultImage, "isolation": "NONE", "resources": object{"memoryMiB": 1 << 20}}
	b.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": big}, nil)
	wait.For(t, "the list says what a runner waits for", func() bool {
		var out, errs bytes.Buffer
		code := bed.RunCLI([]string{"runner", "list", "--env", "big", "--server", b.Address, "--token-file", settings.TokenFile}, nil, &out, &errs)
		return code == 0 && strings.Contains(out.String(), "memory exhausted on 1 node")
	})
	b.Call(t, `mutation { deleteEnvironment(input: {id: "big"}) { deleted } }`, nil, nil)

	// A restarted server knows the runner, its claim and its files.
	stop()
	b, _ = bed.ServeHere(t, settings)
	resumed, again, err := client.ClaimOrResume(t.Context(), b, client.ClaimRunnerInput{EnvironmentId: "shell", Holder: new("ada")})
	if err != nil || resumed != runner || !again {
		t.Errorf("%s, then %s, resumed: %v, %v", runner, resumed, again, err)
	}
	if r := b.Shell(t, runner, "ls"); r.Stream("STDOUT") != "f\n" {
		t.Errorf("%+v", r)
	}
	// Without a token a client is refused, but Nomad fetches agents without one.
	stranger := client.New(b.Address)
	defer stranger.CloseIdle()
	if err := stranger.Do(t.Context(), `{ version }`, nil, nil); err == nil {
		t.Error("served without a token")
	}
	for file, want := range map[string]int{settings.TokenFile: 0, settings.Nomad.TokenFile: command.CodeOurs} {
		var out, errs bytes.Buffer
		if code := bed.RunCLI([]string{"env", "list", "--server", b.Address, "--token-file", file}, nil, &out, &errs); code != want || strings.Contains(out.String(), "shell") != (want == 0) {
			t.Errorf("%d: %s%s", code, out.String(), errs.String())
		}
	}
	b.Call(t, `mutation { deleteEnvironment(input: {id: "shell", endClaimed: true}) { deleted } }`, nil, nil)
	wait.For(t, "no job is left", func() bool {
		jobs, _, err := n.API().Jobs().List(nil)
		return err == nil && len(jobs) == 0
	})
}

func TestE2ENomadUnreachableIsReportedAtStart(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	if err := n.KillServer(); err != nil {
		t.Fatal(err)
	}
	settings := newNomadConfig(t, n)
	b, _ := bed.ServeHere(t, settings)
	var out struct {
		Health struct {
			Status     string
			Components []struct{ Name, Status, Message string }
		}
	}
	wait.For(t, "health reports that Nomad is unreachable", func() bool {
		b.Call(t, `{ health { status components { name status message } } }`, nil, &out)
		return out.Health.Status != "OK" && strings.Contains(fmt.Sprint(out.Health.Components), "connection refused")
	})
	defer http.DefaultClient.CloseIdleConnections()
	probe(t, b, "/health/live", http.StatusOK, "")
	probe(t, b, "/health/ready", http.StatusServiceUnavailable, "connection refused")
	response, err := http.Get(b.Address + "/agent/")
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); response.StatusCode != http.StatusNotFound {
		t.Errorf("agents aren't served: %s", response.Status)
	}
	b.Refused(t, `{ environments { id } }`, nil, runtime.CodeClusterUnavailable, "")
	if err := n.RestartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it serves", func() bool { return b.Do(t.Context(), `{ environments { id } }`, nil, nil) == nil })
	probe(t, b, "/health/ready", http.StatusOK, "")
}

// TestE2ENomadStandbyIsNotReady uses nodes that have the agent, so that nothing is fetched from the
// standby either.
func TestE2ENomadStandbyIsNotReady(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	settings := newNomadConfig(t, n)
	settings.Listen, settings.AdvertiseURL, settings.Nomad.AgentPath = "127.0.0.1:0", "", "/nonesuch"
	b, stop := bed.ServeHere(t, settings)
	wait.For(t, "the first server serves", func() bool { return b.Do(t.Context(), `{ environments { id } }`, nil, nil) == nil })
	settings.Data = t.TempDir()
	standby, _ := bed.ServeHere(t, settings)
	defer http.DefaultClient.CloseIdleConnections()
	wait.For(t, "it says what it waits for", func() bool {
		status, body := probed(t, standby, "/health/ready")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "another server owns")
	})
	probe(t, standby, "/health/live", http.StatusOK, "")
	probe(t, b, "/health/ready", http.StatusOK, "")
	stop()
	wait.For(t, "it takes over", func() bool { status, _ := probed(t, standby, "/health/ready"); return status == http.StatusOK })
}

// probed returns the server's answer to a probe with its token.
func probed(t *testing.T, b bed.Bed, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.Address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer correct-horse-battery")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func probe(t *testing.T, b bed.Bed, path string, want int, says string) {
	t.Helper()
	if status, body := probed(t, b, path); status != want || !strings.Contains(body, says) {
		t.Errorf("%s: %d %q", path, status, body)
	}
}

func TestE2ENomadRefusedTemplateStopsTheServer(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	settings := newNomadConfig(t, n)
	settings.Nomad.Template = writeFile(t, `job "runner" {
		type = "service"
		group "runner" {
			task "runner" {
				driver = "raw_exec"
			}
		}
	}`)
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	err := server.New(settings, zaptest.NewLogger(t)).Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--nomad-template") || !strings.Contains(err.Error(), "service") {
		t.Errorf("got %v, want an error that names --nomad-template and the type service", err)
	}
}

func TestE2EDoctorChecksTheNomadOfTheSettings(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{ACL: true})
	settings := newNomadConfig(t, n)
	for driver, want := range map[string]int{"raw_exec": 0, "podman": 1} {
		file := writeFile(t, fmt.Sprintf("cluster: nomad\nlisten: %s\nadvertise-url: %s\nnomad-address: %s\nnomad-token-file: %s\nnomad-driver: %s\n",
			n.Spare(), settings.AdvertiseURL, settings.Nomad.Address, settings.Nomad.TokenFile, driver))
		out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "doctor", "--config", file)
		if code != want || !strings.Contains(out, "OK    policy") || !strings.Contains(out, "OK    connections") || !strings.Contains(out, "no server listens at http://"+n.Spare()) {
			t.Errorf("%s: %d\n%s%s", driver, code, out, errs)
		}
		if strings.Contains(out, n.Token()) {
			t.Error("the output contains the token")
		}
	}
}

// writeFile returns the path of a new file.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
