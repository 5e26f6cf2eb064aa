package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/rockpool/rockpool/client"
)

const appendFloor = "A POST of the same size, to a process that writes it to a file and answers as much."

func claimRows() []Row {
	return []Row{{
		Name:  "claim",
		What:  "A warm runner is claimed through GraphQL over HTTP, while nothing else goes on; the claim is durable when it is answered.",
		Floor: appendFloor, Unit: Milliseconds, Per: "claim",
		Goals: []Goal{{Of: "p50", AtMost: 1}, {Of: "p99", AtMost: 10}},
		open:  openClaim(1, 20),
	}, {
		Name:  "claim/burst",
		What:  "Twenty are claimed one after the other, while the pool makes new ones on the same CPUs for those that went.",
		Floor: appendFloor, Unit: Milliseconds, Per: "claim",
		open: openClaim(20, 1),
	}}
}

// openClaim claims so many at a time, so often in a round.
func openClaim(together, times int) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		idle := max(together, 2)
		s, err := b.serve(ctx, idle, 0)
		if err != nil {
			return pair{}, err
		}
		post := b.floors.poster("/append", claimBody())
		row := func(ctx context.Context, r *round) error { return claims(ctx, s, r, idle, together, b.ops(times)) }
		floor := func(ctx context.Context, r *round) error {
			return repeat(b.ops(times)*together, func() error { return r.time(func() error { return post(ctx) }) })
		}
		return pair{row: row, floor: floor}, warm(ctx, row, floor)
	}
}

// claims claims, releases and lets the pool fill again; only the claims are
// timed.
func claims(ctx context.Context, s *target, r *round, idle, together, times int) error {
	return repeat(times, func() error {
		runners := make([]string, together)
		for i := range runners {
			if err := r.time(func() (err error) {
				runners[i], err = s.claim(ctx)
				return err
			}); err != nil {
				return err
			}
		}
		for _, runner := range runners {
			if err := s.release(ctx, runner); err != nil {
				return err
			}
		}
		return s.settle(ctx, idle)
	})
}

func claimBody() []byte {
	body, _ := json.Marshal(map[string]any{"operationName": "ClaimRunner", "query": client.ClaimRunner_Operation, "variables": map[string]any{"input": claimInput()}})
	return body
}

// poster returns what posts a body to one of the floors and reads the answer.
func (f *floorProcess) poster(path string, body []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, response.Status)
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
}

// warm uses each probe once, and forgets what it took.
func warm(ctx context.Context, probes ...probe) error {
	for _, p := range probes {
		if err := p(ctx, &round{}); err != nil {
			return err
		}
	}
	return nil
}

func repeat(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
