package doctor

import (
	"context"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/runtime/store"
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
	if settings.Database == "" {
		return
	}
	if version, err := store.Examine(ctx, settings.Database); err != nil {
		tell(finding.Failure("database", "see docs/guides/nomad.md, \"Several servers\"", "%v", err))
	} else {
		tell(finding.Fine("database", "PostgreSQL %s", version))
	}
}
