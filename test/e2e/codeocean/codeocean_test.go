package codeocean

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

const token = "correct-horse-battery"

// serve starts a server with the API.
func serve(t *testing.T, change func(*config.Config)) bed.Bed {
	t.Helper()
	need.Sandboxes(t)
	settings := bed.Settings(bed.DataDir(t), bed.Cgroups)
	settings.TokenFile, settings.Compat = filepath.Join(t.TempDir(), "token"), []string{config.CompatPoseidon}
	if err := os.WriteFile(settings.TokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&settings)
	}
	b, _ := bed.ServeHere(t, settings)
	return b
}

// TestE2ECodeOcean uses the API as CodeOcean uses Poseidon. Metrics have its requests by route,
// and the audit log names the API.
func TestE2ECodeOcean(t *testing.T) {
	b := serve(t, nil)
	Platform{URL: b.Address, Token: token, Image: "host"}.Run(t)
	var told struct {
		AuditLog struct {
			Nodes []struct {
				Details []struct{ Name, Value string }
			}
		}
	}
	b.Call(t, `{ auditLog(action: "putEnvironment", failed: false) { nodes { details { name value } } } }`, nil, &told)
	if all := told.AuditLog.Nodes; len(all) == 0 || len(all[0].Details) != 1 || all[0].Details[0].Name != "api" || all[0].Details[0].Value != "poseidon" {
		t.Errorf("the audit log has %+v", all)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.Address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`route="POST /api/v1/runners",status="2xx"`, `route="GET /api/v1/runners/{runner}/websocket",status="1xx"`} {
		if !strings.Contains(string(text), `rockpool_compat_request_seconds_count{api="poseidon",`+part) {
			t.Errorf("the metrics have no %s", part)
		}
	}
}

// call sends a request to the API.
func call(t *testing.T, b bed.Bed, method, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.Address+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Poseidon-Token", token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

const connected = `{"image":"host","prewarmingPoolSize":1,"cpuLimit":20,"memoryLimit":64,"networkAccess":true,"exposedPorts":[8080]}`

func TestE2ECodeOceanWithoutANetwork(t *testing.T) {
	b := serve(t, nil)
	status, answer := call(t, b, "PUT", "/execution-environments/1", connected)
	if status != http.StatusBadRequest || !strings.Contains(answer, "networkAccess") || !strings.Contains(answer, "--network") {
		t.Errorf("PUT is answered with %d: %s", status, answer)
	}
}

func TestE2ECodeOceanExposesPorts(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	networktest.New(t) // its machine forwards packets
	b := serve(t, func(c *config.Config) { c.Network = true })
	if status, answer := call(t, b, "PUT", "/execution-environments/1", connected); status != http.StatusCreated {
		t.Fatalf("PUT is answered with %d: %s", status, answer)
	}
	var claimed struct {
		RunnerID    string
		MappedPorts []struct {
			ExposedPort int
			HostAddress string
		}
	}
	wait.For(t, "a runner", func() bool {
		status, answer := call(t, b, "POST", "/runners", `{"executionEnvironmentId":1,"inactivityTimeout":60}`)
		return status == http.StatusOK && json.Unmarshal([]byte(answer), &claimed) == nil
	})
	if len(claimed.MappedPorts) != 1 || claimed.MappedPorts[0].ExposedPort != 8080 {
		t.Fatalf("its ports are %+v", claimed.MappedPorts)
	}
	const listen = `python3 -c 'import socket; c, _ = socket.create_server(("", 8080)).accept(); c.sendall(b"it is me")'`
	var listening struct{ WebsocketURL string }
	body, _ := json.Marshal(map[string]any{"command": listen, "timeLimit": 60})
	status, answer := call(t, b, "POST", "/runners/"+claimed.RunnerID+"/execute", string(body))
	if status != http.StatusOK || json.Unmarshal([]byte(answer), &listening) != nil {
		t.Fatalf("execute is answered with %d: %s", status, answer)
	}
	ws, _, err := websocket.Dial(t.Context(), listening.WebsocketURL, &websocket.DialOptions{HTTPHeader: http.Header{"Poseidon-Token": {token}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	wait.For(t, "a connection to the runner", func() bool {
		conn, err := net.Dial("tcp", claimed.MappedPorts[0].HostAddress)
		if err != nil {
			return false
		}
		defer conn.Close()
		said, _ := io.ReadAll(conn)
		return string(said) == "it is me"
	})
}
