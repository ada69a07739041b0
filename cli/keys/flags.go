package keys

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// dryRun is the flag --dry-run.
type dryRun struct{ server bool }

// String returns the value of the flag.
func (d *dryRun) String() string {
	if d.server {
		return "server"
	}
	return "none"
}

// Type is the name of the value in --help.
func (*dryRun) Type() string { return "none|server" }

// Set reads the value. Only the API server knows the rules, so there is no dry run of the client.
func (d *dryRun) Set(text string) error {
	switch text {
	case "none", "server":
		d.server = text == "server"
		return nil
	case "client":
		return errors.New(`"client" would check nothing; use server`)
	}
	return fmt.Errorf("%q is not one of none, server", text)
}

// timeFlag is a flag with a time.
type timeFlag struct{ time.Time }

// String returns the value of the flag.
func (t *timeFlag) String() string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// Type is the name of the value in --help.
func (*timeFlag) Type() string { return "time" }

// Set reads a time.
func (t *timeFlag) Set(text string) error {
	read, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%q is not a time; use a form like 2100-01-01T00:00:00Z", text)
	}
	t.Time = read
	return nil
}

// ScheduleFlags say how long a key may be used: what a platform's admission policies may demand of live keys.
type ScheduleFlags struct {
	rotateEvery time.Duration
	expiresAt   timeFlag
}

// Add adds the flags.
func (f *ScheduleFlags) Add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.rotateEvery, "rotate-every", 0, "maximum age of a key, after which it is replaced in its Secret, such as 2160h for 90 days; 0: no limit")
	cmd.Flags().Var(&f.expiresAt, "expires-at", "time from which the key is refused, such as 2100-01-01T00:00:00Z; empty: never")
}

// Apply writes them into a manifest.
func (f *ScheduleFlags) Apply(key *v1alpha1.ApiKey, now time.Time) error {
	const least, most = 5 * time.Minute, 87600 * time.Hour // as the API server allows
	switch every := f.rotateEvery; {
	case every != 0 && (every < least || every > most || every%time.Second != 0):
		return terminal.Usage("For 90 days use 2160h.", "--rotate-every must be whole seconds from 5m to 87600h, or 0, not %s", every)
	case !f.expiresAt.IsZero() && !f.expiresAt.After(now):
		return terminal.Usage("Name a later time.", "--expires-at is past")
	case every != 0:
		key.Spec.Rotation.EverySeconds = new(int32(every / time.Second)) //nolint:gosec // at most ten years
	}
	if !f.expiresAt.IsZero() {
		key.Spec.ExpiresAt = &metav1.Time{Time: f.expiresAt.Time}
	}
	return nil
}

// PermissionsFlag is the flag --permissions; nil: those that a key has without words.
type PermissionsFlag []v1alpha1.Permission

// allPermissions is the value of the flag for what the spec says without words: all but refund.
const allPermissions = "all"

// Add adds the flag; without it a key may do what a till needs.
func (f *PermissionsFlag) Add(cmd *cobra.Command) {
	*f = v1alpha1.TillPermissions()
	cmd.Flags().Var(f, "permissions", "what the key may do: some of "+terminal.Join(v1alpha1.Permissions(), ",")+"; or all, which is all but refund")
	_ = cmd.RegisterFlagCompletionFunc("permissions", cobra.FixedCompletions([]string{f.String(), allPermissions}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
}

// String returns the value of the flag.
func (f *PermissionsFlag) String() string {
	if *f == nil {
		return allPermissions
	}
	return terminal.Join(*f, ",")
}

// Type is the name of the value in --help.
func (*PermissionsFlag) Type() string { return "words" }

// Set reads permissions.
func (f *PermissionsFlag) Set(text string) error {
	*f = nil
	if text == allPermissions {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		permission := v1alpha1.Permission(word)
		if !slices.Contains(v1alpha1.Permissions(), permission) {
			return fmt.Errorf("%q is not one of %s, all", word, terminal.Join(v1alpha1.Permissions(), ","))
		}
		if !slices.Contains(*f, permission) {
			*f = append(*f, permission)
		}
	}
	return nil
}

// ModeFlag is the flag --mode.
type ModeFlag v1alpha1.ApiKeyMode

// String returns the value of the flag.
func (m *ModeFlag) String() string { return string(*m) }

// Type is the name of the value in --help.
func (*ModeFlag) Type() string { return "Live|Test" }

// Set reads a mode.
func (m *ModeFlag) Set(text string) error {
	if text != string(v1alpha1.ModeLive) && text != string(v1alpha1.ModeTest) {
		return fmt.Errorf("%q is not one of Live, Test", text)
	}
	*m = ModeFlag(text)
	return nil
}
