package graph

import (
	"slices"
	"testing"
)

// Runners are returned in pages, from either end, and filtered.
func TestRunnersAreReturnedInPages(t *testing.T) {
	b := newBed(t)
	b.environment("other", 1)
	b.environment("a", 0)
	var claimed []string
	for _, value := range []string{"Algorithms", "algebra", "physics"} {
		var out struct {
			ClaimRunner struct{ Runner struct{ ID string } }
		}
		b.send(`mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`,
			in{"in": in{"environmentId": "a", "waitFor": 30, "labels": []in{{"name": "course", "value": value}}}}, &out)
		claimed = append(claimed, out.ClaimRunner.Runner.ID)
	}
	backwards := slices.Clone(claimed)
	slices.Reverse(backwards)
	for name, test := range map[string]struct {
		arguments string
		want      []string
	}{
		"oldest first":              {`environmentId: "a"`, claimed},
		"newest first":              {`environmentId: "a", newestFirst: true`, backwards},
		"a label's text":            {`heldBy: "COURSE=alg"`, claimed[:2]},
		"part of a label's text":    {`heldBy: "phys"`, claimed[2:]},
		"a label":                   {`labels: [{name: "course", value: "algebra"}]`, claimed[1:2]},
		"a label's name":            {`labels: [{name: "course"}], newestFirst: true`, backwards},
		"two labels":                {`labels: [{name: "course", value: "algebra"}, {name: "x"}]`, nil},
		"a time":                    {`labels: [{name: "course"}], from: "2020-01-01T00:00:00Z", to: "2999-01-01T00:00:00Z"`, claimed},
		"another time":              {`to: "2020-01-01T00:00:00Z"`, nil},
		"text of no runner":         {`heldBy: "chemistry"`, nil},
		"empty text: idle and held": {`environmentId: "a", heldBy: ""`, claimed},
		"all filters":               {`environmentId: "a", states: [CLAIMED], heldBy: "al", newestFirst: true`, backwards[1:]},
	} {
		var got []string
		for after := "null"; ; {
			var out struct {
				Runners struct {
					Nodes    []struct{ ID string }
					PageInfo struct {
						HasNextPage bool
						EndCursor   string
					}
					TotalCount int
				}
			}
			b.send(`{ runners(`+test.arguments+`, first: 1, after: `+after+`) { nodes { id } pageInfo { hasNextPage endCursor } totalCount } }`, nil, &out)
			for _, node := range out.Runners.Nodes {
				got = append(got, node.ID)
			}
			if out.Runners.TotalCount != len(test.want) {
				t.Errorf("%s: %d in all", name, out.Runners.TotalCount)
			}
			if !out.Runners.PageInfo.HasNextPage {
				break
			}
			after = `"` + out.Runners.PageInfo.EndCursor + `"`
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
