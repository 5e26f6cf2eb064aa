package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// keptMemory is the memory of the servers in these tests.
const keptMemory = 256 << 20

// An attack makes requests until one is refused. It fails the test if none is.
type attack struct {
	p     *bed.Process
	group string
	used  string // the file with the group's usage
}

// attacked starts a server in a group of 256 MiB.
func attacked(t *testing.T, data string, settings ...string) attack {
	t.Helper()
	group, used := memoryGroup(t, keptMemory)
	return attack{serveIn(t, group, data, settings...), group, used}
}

// request sends an operation, and returns the code and the message of its first error; "" means none.
func (a attack) request(t *testing.T, query string, variables any, out any) (code, message string) {
	t.Helper()
	body, err := json.Marshal(object{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(a.p.Address+"/graphql", "application/json", bytes.NewReader(body)) //nolint:noctx // the test's time limit ends it
	if err != nil {
		t.Fatalf("the server doesn't answer; its group uses %s: %v", readText(t, a.used), err)
	}
	defer response.Body.Close()
	var answer struct {
		Data   json.RawMessage
		Errors []struct {
			Message    string
			Extensions struct{ Code string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Errors) > 0 {
		return answer.Errors[0].Extensions.Code, answer.Errors[0].Message
	}
	if out != nil {
		if err := json.Unmarshal(answer.Data, out); err != nil {
			t.Fatal(err)
		}
	}
	return "", ""
}

// refused sends requests until one is refused, at most most. It checks that the refusal names what
// it was for, and returns how many succeeded. The server must still answer.
func (a attack) refused(t *testing.T, most int, what string, one func(i int) (code, message string)) (n int) {
	t.Helper()
	var code, message string
	for ; n < most && code == ""; n++ {
		code, message = one(n)
	}
	t.Logf("%d of %s, then %s: %s; the group uses %s, the server %d MiB", n-1, what, code, message, readText(t, a.used), memoryOf(t, a.p)>>20)
	if code != "QUOTA_EXCEEDED" || !strings.Contains(message, what) || !strings.Contains(message, "KiB") {
		t.Errorf("request %d of %d: got %q %q, want QUOTA_EXCEEDED that names %q and the limit", n, most, code, message, what)
	}
	if code, message := a.request(t, "{ version }", nil, nil); code != "" {
		t.Errorf("afterwards: %s %s", code, message)
	}
	return n - 1
}

// TestE2EKeptMemoryIsBounded makes a server in 256 MiB keep more for its callers than it has memory
// for. It refuses by name, and lives. When the callers' things have ended, it accepts them again.
func TestE2EKeptMemoryIsBounded(t *testing.T) {
	need.Machine(t)
	comment := "#" + strings.Repeat("x", 17<<10) + "\n"
	var variables []object // 480 KB
	for i := range 15 {
		variables = append(variables, object{"name": fmt.Sprintf("V%d", i), "value": strings.Repeat("v", 32_000)})
	}

	t.Run("tickets", func(t *testing.T) {
		a := attacked(t, bed.DataDir(t))
		if code, message := a.request(t, `mutation { putEnvironment(input: {id: "none", poolSize: 0, resources: {memoryMiB: 1000000}}) { created } }`, nil, nil); code != "" {
			t.Fatal(code, message)
		}
		var last struct {
			ClaimRunner struct{ Ticket struct{ ID string } }
		}
		claim := func(int) (string, string) {
			return a.request(t, comment+`mutation { claimRunner(input: {environmentId: "none", wait: TICKET, labels: [{name: "a", value: "b"}]}) { ticket { id } } }`, nil, &last)
		}
		a.refused(t, 3_000, "a waiting claim", claim)
		if code, message := a.request(t, `mutation($id: ID!) { cancelTicket(id: $id) { ticket { state } } }`, object{"id": last.ClaimRunner.Ticket.ID}, nil); code != "" {
			t.Fatal(code, message)
		}
		// The claim of a cancelled ticket ends in the background. Its memory is free after that.
		wait.For(t, "a ticket after one was cancelled", func() bool {
			code, _ := claim(0)
			return code == ""
		})
		a.p.Finish(t)
	})

	t.Run("executions", func(t *testing.T) {
		data := bed.DataDir(t)
		a := attacked(t, data, "--on-stop", "keep")
		var claimed struct {
			ClaimRunner struct{ Runner struct{ ID string } }
		}
		// It returns when the agent has the execution. Until then the server keeps what starts it.
		start := func(int) (code, message string) {
			var began struct {
				StartExecution struct{ Execution struct{ ID string } }
			}
			code, message = a.request(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
				object{"in": object{"runnerId": claimed.ClaimRunner.Runner.ID, "command": []string{"sh", "-c", "exec sleep 1000", strings.Repeat("x", 60_000)}, "variables": variables}}, &began)
			if code != "" {
				return code, message
			}
			wait.For(t, "the execution runs", func() bool {
				var now struct {
					Execution struct{ State, Outcome, Message string }
				}
				code, message = a.request(t, `query($id: ID!) { execution(id: $id) { state outcome message } }`, object{"id": began.StartExecution.Execution.ID}, &now)
				if now.Execution.State == "FINISHED" {
					t.Fatalf("the execution ended: %+v", now.Execution)
				}
				return code != "" || now.Execution.State == "RUNNING"
			})
			return code, message
		}
		if code, message := a.request(t, `mutation { putEnvironment(input: {id: "many", poolSize: 0, resources: {memoryMiB: 2048, processes: 1000}}) { created } }`, nil, nil); code != "" {
			t.Fatal(code, message)
		}
		if code, message := a.request(t, `mutation { claimRunner(input: {environmentId: "many", waitFor: 300}) { runner { id } } }`, nil, &claimed); code != "" {
			t.Fatal(code, message)
		}
		n := a.refused(t, 500, "an execution", start)
		// The data of their start is gone, or there would be room for 16.
		if n < 100 {
			t.Errorf("only %d executions began", n)
		}
		a.p.End(t, syscall.SIGKILL, false)
		a.p = serveIn(t, a.group, data)
		var left struct{ Executions struct{ TotalCount int } }
		if code, message := a.request(t, `{ executions(states: [RUNNING, PENDING]) { totalCount } }`, nil, &left); code != "" || left.Executions.TotalCount < n {
			t.Errorf("after a restart: %d of %d executions, %s %s", left.Executions.TotalCount, n, code, message)
		}
		t.Logf("after a restart the group uses %s", readText(t, a.used))
		a.p.Finish(t)
	})

	t.Run("environments", func(t *testing.T) {
		data := bed.DataDir(t)
		a := attacked(t, data)
		put := func(i int) (string, string) {
			return a.request(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
				object{"in": object{"id": "e" + strconv.Itoa(i), "poolSize": 0, "variables": variables}}, nil)
		}
		n := a.refused(t, 460, "environment e", put)
		if code, message := a.request(t, `mutation { deleteEnvironment(input: {id: "e0"}) { deleted } }`, nil, nil); code != "" {
			t.Fatal(code, message)
		}
		if code, message := put(0); code != "" {
			t.Errorf("after one was deleted: %s %s", code, message)
		}
		a.p.End(t, syscall.SIGKILL, false)
		a.p = serveIn(t, a.group, data)
		var all struct{ Environments []struct{ ID string } }
		if code, message := a.request(t, `{ environments { id } }`, nil, &all); code != "" || len(all.Environments) < n {
			t.Errorf("after a restart: %d of %d environments, %s %s", len(all.Environments), n, code, message)
		}
		if code, _ := put(n + 1); code != "QUOTA_EXCEEDED" {
			t.Errorf("after a restart another environment is answered %q, want \"QUOTA_EXCEEDED\"", code)
		}
		a.p.Finish(t)
	})

	t.Run("jobe", func(t *testing.T) {
		a := attacked(t, bed.DataDir(t), "--compat", "jobe")
		content := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("c"), 7<<20))
		f := &flood{server: strings.TrimPrefix(a.p.Address, "http://")}
		t.Cleanup(f.end)
		for i := range 22 {
			f.post(f.dial(t, i, 22), false) // a body that never ends
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("%s/jobe/index.php/restapi/files/file%08d", a.p.Address, i), strings.NewReader(`{"file_contents":"`+content+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatalf("file %d; the group uses %s: %v", i, readText(t, a.used), err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusNoContent && response.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("file %d: %s", i, response.Status)
			}
		}
		t.Logf("the group uses %s, the server %d MiB", readText(t, a.used), memoryOf(t, a.p)>>20)
		f.end()
		if code, message := a.request(t, "{ version }", nil, nil); code != "" {
			t.Errorf("afterwards: %s %s", code, message)
		}
		a.p.Finish(t)
	})
}
