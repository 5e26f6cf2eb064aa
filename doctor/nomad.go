package doctor

import (
	"context"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/server"
)

// examineNomad looks at the Nomad that the settings name, and changes nothing
// there.
func examineNomad(ctx context.Context, settings config.Config, tell func(...finding.Finding)) {
	found, err := server.ExamineNomad(ctx, settings)
	if err != nil {
		tell(finding.Failure("settings", "see docs/config.example.yaml", "%v", err))
		return
	}
	tell(found...)
}
