package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// answering returns a client of a server that sends these responses, one per request.
func answering(t *testing.T, answers ...string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if len(answers) == 0 {
			t.Error("got one request too many")
			return
		}
		_, _ = w.Write([]byte(answers[0]))
		answers = answers[1:]
	}))
	t.Cleanup(server.Close)
	c := New(server.URL)
	t.Cleanup(c.CloseIdle)
	return c
}

func TestAwaitWaitsUntilTheEnd(t *testing.T) {
	running := `{"data": {"execution": {"state": "RUNNING"}}}`
	ended := `{"data": {"execution": {"state": "FINISHED", "outcome": "RUNNER_GONE", "goneReason": "EVICTED"}}}`
	for _, await := range []func(*Client) (Ending, error){
		func(c *Client) (Ending, error) { return Await(t.Context(), c, "x") },
		func(c *Client) (Ending, error) {
			result, err := AwaitResult(t.Context(), c, "x")
			return result.Ending, err
		},
	} {
		if end, err := await(answering(t, running, running, ended)); err != nil || end.String() != "RUNNER_GONE EVICTED" {
			t.Errorf("%v, %v", end, err)
		}
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	refusal := `{"errors": [{"message": "gone", "extensions": {"code": "RUNNER_GONE", "field": "runnerId"}}]}`
	c := answering(t, refusal, refusal)
	around := c.Around(func(ctx context.Context, send func(context.Context) error) error { return send(ctx) })
	for _, sender := range []Sender{c, around} {
		_, err := Run(t.Context(), sender, StartExecutionInput{})
		refused, ok := errors.AsType[*Error](err)
		if !ok || refused.Extensions.Code != runtime.CodeRunnerGone || refused.Extensions.Field != "runnerId" {
			t.Errorf("%v", err)
		}
	}
}
