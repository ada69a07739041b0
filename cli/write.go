package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// writeFlags are those of commands that write objects.
type writeFlags struct {
	dryRun  dryRun
	timeout time.Duration
	reveal  bool
	out     *terminal.Output
	// objects prints the objects; with -o yaml it separates them.
	objects printers.ResourcePrinter
}

const defaultTimeout = time.Minute

func (w *writeFlags) add(cmd *cobra.Command, _ *plugin) {
	w.addWithoutReveal(cmd)
	cmd.Flags().BoolVar(&w.reveal, "reveal", false, "print the key to stdout, and the rest to stderr; needs the right to get the Secret")
}

func (w *writeFlags) addWithoutReveal(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&w.dryRun, "dry-run", "server: let the API server check everything, and write nothing; none: write")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "server"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	flags.DurationVar(&w.timeout, "timeout", defaultTimeout, "time to wait for the operator; 0s: do not wait")
	w.out = terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName)
}

// connect checks the flags, and connects.
func (w *writeFlags) connect(p *plugin) (*cluster.Cluster, error) {
	switch {
	case w.timeout < 0:
		return nil, terminal.Usage("With 0s it does not wait.", "--timeout must not be negative")
	case w.reveal && (w.dryRun.server || w.out.Format != "" || w.timeout == 0):
		return nil, terminal.Usage("Leave out --reveal, or --dry-run, -o and --timeout=0s.", "--reveal prints only the key, and waits for it")
	}
	return p.access.Connect()
}

func (w *writeFlags) createOptions() []client.CreateOption {
	if w.dryRun.server {
		return []client.CreateOption{client.DryRunAll}
	}
	return nil
}

// print prints an object: as a manifest for Git, or what was done with it.
func (w *writeFlags) print(p *plugin, object client.Object, done string) error {
	to := p.Out
	if w.reveal {
		to = p.ErrOut
	}
	if w.objects == nil {
		switch w.out.Format {
		case terminal.FormatJSON:
			w.objects = &printers.JSONPrinter{}
		case terminal.FormatYAML:
			w.objects = &printers.YAMLPrinter{}
		case terminal.FormatName:
			w.objects = &printers.NamePrinter{ShortOutput: true}
		default:
			w.objects = &printers.NamePrinter{}
		}
	}
	if name, ok := w.objects.(*printers.NamePrinter); ok {
		if w.dryRun.server {
			done += " (server dry run)"
		}
		name.Operation = done
	}
	return w.objects.PrintObj(object, to)
}

// change writes a change of an ApiKey, and finishes.
func (w *writeFlags) change(ctx context.Context, p *plugin, kube *cluster.Cluster, key *v1alpha1.ApiKey, done string, edit func(), options ...client.PatchOption) error {
	if w.dryRun.server {
		options = append(options, client.DryRunAll)
	}
	if err := kube.ChangeKey(ctx, key, edit, options...); err != nil {
		return fmt.Errorf("change ApiKey %s/%s: %w", key.Namespace, key.Name, err)
	}
	manifest := newApiKey(key.Name, "", "", defaultOverlap)
	manifest.Namespace, manifest.Spec = key.Namespace, key.Spec
	if err := w.print(p, manifest, done); err != nil {
		return err
	}
	return w.finish(ctx, p, kube, key)
}

// finish waits until the operator has handled an ApiKey, and prints the key if it is asked for.
func (w *writeFlags) finish(ctx context.Context, p *plugin, kube *cluster.Cluster, key *v1alpha1.ApiKey) error {
	if w.dryRun.server {
		return nil
	}
	if err := kube.Await(ctx, w.timeout, key, func() cluster.Progress { return settled(key) }); err != nil {
		return err
	}
	if w.reveal {
		return p.reveal(ctx, kube, key)
	}
	if secret := key.DeliverySecretName(); secret != "" && key.Spec.State != v1alpha1.ApiKeyDisabled && w.timeout > 0 {
		fmt.Fprintf(p.ErrOut, "The key is in Secret %s. Print it with: kubectl merchant keys reveal %s -n %s\n", secret, key.Name, key.Namespace)
	}
	return nil
}

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

// permissionsFlag is the flag --permissions; nil: all.
type permissionsFlag []v1alpha1.Permission

// allPermissions is the value of the flag for all permissions, which also the spec says without words.
const allPermissions = "all"

func (f *permissionsFlag) add(cmd *cobra.Command) {
	*f = v1alpha1.TillPermissions()
	cmd.Flags().Var(f, "permissions", "what the key may do: some of "+terminal.Join(v1alpha1.Permissions(), ",")+"; or all")
	_ = cmd.RegisterFlagCompletionFunc("permissions", cobra.FixedCompletions([]string{f.String(), allPermissions}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
}

// String returns the value of the flag.
func (f *permissionsFlag) String() string {
	if *f == nil {
		return allPermissions
	}
	return terminal.Join(*f, ",")
}

// Type is the name of the value in --help.
func (*permissionsFlag) Type() string { return "words" }

// Set reads permissions.
func (f *permissionsFlag) Set(text string) error {
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

// modeFlag is the flag --mode.
type modeFlag v1alpha1.ApiKeyMode

// String returns the value of the flag.
func (m *modeFlag) String() string { return string(*m) }

// Type is the name of the value in --help.
func (*modeFlag) Type() string { return "Live|Test" }

// Set reads a mode.
func (m *modeFlag) Set(text string) error {
	if text != string(v1alpha1.ModeLive) && text != string(v1alpha1.ModeTest) {
		return fmt.Errorf("%q is not one of Live, Test", text)
	}
	*m = modeFlag(text)
	return nil
}
