package bed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"testing"
)

// PartsHealth is a server's health.
type PartsHealth struct {
	Status     string
	Components []struct{ Name, Status, Message string }
}

// Of returns a component's status and message; empty if there is no such component.
func (h PartsHealth) Of(component string) (status, message string) {
	for _, c := range h.Components {
		if c.Name == component {
			return c.Status, c.Message
		}
	}
	return "", ""
}

// HealthQuery requests a [PartsHealth].
const HealthQuery = `{ health { status components { name status message } } }`

// Health requests the health over an open connection.
func (p *Process) Health(t *testing.T, conn net.Conn) PartsHealth {
	t.Helper()
	body, err := json.Marshal(object{"query": HealthQuery})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if err := request.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var out struct{ Data struct{ Health PartsHealth } }
	if err := json.NewDecoder(response.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out.Data.Health
}
