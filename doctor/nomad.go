package doctor

import (
	"context"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
)

// examineNomad looks at the Nomad that the settings name, and changes nothing
// there.
func examineNomad(ctx context.Context, settings config.Config, tell func(...finding)) {
	found, err := server.ExamineNomad(ctx, settings)
	if err != nil {
		tell(bad("settings", "see docs/config.example.yaml", "%v", err))
		return
	}
	for _, f := range found {
		tell(finding{f.Name, verdict(f.Status), f.Message, f.Advice})
	}
}
