// What make release needs and the server doesn't: it writes the bill of materials
// and the licences of what a release contains.
module github.com/rockpool/rockpool/tools/release

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/licensecheck v0.3.1
)
