package top

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/client"
)

func running(id string, wall, cpu, memory int64) client.RunningExecution {
	processes := 2
	return client.RunningExecution{
		Id: id, EnvironmentId: "python", Tenant: "default", CommandLine: "sh -c x", Labels: []client.Label{{Name: "user", Value: "ada"}},
		UsageNow: &client.UsageNow{WallMs: wall, UserMs: cpu, Memory: &memory, Processes: &processes, OutputBytes: 1500},
		Marks:    client.RunningMarks{StartedAt: new(time.Unix(1000, 0))},
		Runner:   &client.UsedRunner{Usage: &client.RunnerUsage{MemoryLimit: 256 << 20, ProcessLimit: 64}},
	}
}

// TestCPUUseSinceThePreviousTable: the first table shows the average since the start; later ones
// the use since the previous table.
func TestCPUUseSinceThePreviousTable(t *testing.T) {
	v := &View{Sort: "cpu"}
	at := time.Unix(1010, 0)
	for i, step := range []struct {
		wall, cpu int64
		want      string
	}{
		{10_000, 1000, "10%"},
		{11_000, 2500, "150%"},
		{11_000, 2500, "150%"}, // the server asked nobody meanwhile
		{13_000, 2500, "0%"},
	} {
		_, table := v.Table([]client.RunningExecution{running("a", step.wall, step.cpu, 1)}, at)
		if got := table.Rows[0][2]; got != step.want {
			t.Errorf("view %d: %s, want %s", i, got, step.want)
		}
	}
}

func TestRows(t *testing.T) {
	silent := client.RunningExecution{Id: "s", EnvironmentId: "shell", Tenant: "default", CommandLine: "cat", Marks: client.RunningMarks{StartedAt: new(time.Unix(1000, 0))}}
	all := []client.RunningExecution{silent, running("a", 60_000, 600, 5<<20), running("b", 61_000, 61_000, 200<<20)}
	sorted, table := (&View{Sort: "memory"}).Table(all, time.Unix(1090, 0))
	want := [][]string{
		{"b", "1m1s", "100%", "200 MiB / 256 MiB", "2 / 64", "1.5 KiB", "python", "default", "user=ada", "sh -c x"},
		{"a", "1m0s", "1%", "5.0 MiB / 256 MiB", "2 / 64", "1.5 KiB", "python", "default", "user=ada", "sh -c x"},
		{"s", "1m30s", "-", "-", "-", "-", "shell", "default", "-", "cat"},
	}
	if diff := cmp.Diff(want, table.Rows); diff != "" {
		t.Error(diff)
	}
	if sorted[0].Id != "b" || len(sorted) != 3 {
		t.Errorf("%+v", sorted)
	}
	if got := Summary(sorted, table); got != "3 running, 205 MiB of memory" {
		t.Error(got)
	}
}

// TestEverySort: every column sorts the largest first; equal rows sort by id.
func TestEverySort(t *testing.T) {
	a, b := running("a", 1000, 10, 1), running("b", 2000, 2000, 2)
	b.UsageNow.Processes, b.UsageNow.OutputBytes = new(3), 3000
	same := running("c", 1000, 10, 1)
	for sort := range sorts {
		sorted, _ := (&View{Sort: sort}).Table([]client.RunningExecution{same, a, b}, time.Unix(1010, 0))
		var ids []string
		for _, x := range sorted {
			ids = append(ids, x.Id)
		}
		if !slices.Equal(ids, []string{"b", "a", "c"}) {
			t.Errorf("by %s: %s", sort, strings.Join(ids, " "))
		}
	}
}
