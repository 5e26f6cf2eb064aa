package isolation

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// A Connected is a runner with a network, and the prober in it.
type Connected struct {
	*bed.Process
	ID    string
	Ports map[int]string // the addresses of its ports
}

// connect claims a runner and uploads the prober.
func connect(t *testing.T, p *bed.Process, environment string) *Connected {
	t.Helper()
	c := &Connected{Process: p, ID: p.ClaimUnreleased(t, environment)}
	program, err := attack.Prober()
	if err != nil {
		t.Fatal(err)
	}
	err = p.Client.UploadFile(t.Context(), c.ID, "prober", "0755", false, int64(len(program)), bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	c.Inspect(t)
	return c
}

// Inspect reads the addresses of the runner's ports, and returns its state; "" once it is gone.
func (c *Connected) Inspect(t *testing.T) (state string) {
	t.Helper()
	out, err := client.GetRunner(t.Context(), c, c.ID)
	if err != nil {
		t.Fatalf("inspect runner %s: %v", c.ID, err)
	}
	c.Ports = map[int]string{}
	if out.Runner == nil {
		return ""
	}
	for _, p := range out.Runner.Ports {
		c.Ports[p.ExposedPort] = p.Address
	}
	return string(out.Runner.State)
}

// WantReachable makes the runner connect to each destination ("tcp/20.0.0.2:7777"). It fails the test unless
// exactly the true ones answer.
func (c *Connected) WantReachable(t *testing.T, destinations map[string]bool) {
	t.Helper()
	command := []string{"./prober", "ask"}
	for destination := range destinations {
		command = append(command, destination)
	}
	r := c.Run(t, object{"runnerId": c.ID, "command": command})
	lines := strings.Split(strings.TrimSpace(r.Stream("STDOUT")), "\n")
	if len(lines) != len(destinations) {
		t.Fatalf("%+v", r)
	}
	for i, destination := range command[2:] {
		if strings.HasSuffix(lines[i], " answered") != destinations[destination] {
			t.Errorf("at %s: %s", destination, lines[i])
		}
	}
}

// Link is the name of the runner's link, and part of the name of its table.
func (c *Connected) Link() string { return network.Name("/" + c.Cgroups + "/" + c.ID) }
