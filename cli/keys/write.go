package keys

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// WriteFlags are the flags of commands that write objects: --dry-run, --timeout, --reveal and -o.
type WriteFlags struct {
	streams genericiooptions.IOStreams

	dryRun  dryRun
	timeout time.Duration
	reveal  bool
	out     *terminal.Output
	// objects prints the objects; with -o yaml it separates them.
	objects printers.ResourcePrinter
}

const defaultTimeout = time.Minute

// Add adds the flags, and keeps where the commands write to.
func (w *WriteFlags) Add(cmd *cobra.Command, streams genericiooptions.IOStreams) {
	w.addWithoutReveal(cmd, streams)
	cmd.Flags().BoolVar(&w.reveal, "reveal", false, "print the key to stdout, and the rest to stderr; needs the right to get the Secret")
}

func (w *WriteFlags) addWithoutReveal(cmd *cobra.Command, streams genericiooptions.IOStreams) {
	w.streams = streams
	flags := cmd.Flags()
	flags.Var(&w.dryRun, "dry-run", "server: let the API server check everything, and write nothing; none: write")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "server"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	flags.DurationVar(&w.timeout, "timeout", defaultTimeout, "time to wait for the operator; 0s: do not wait")
	w.out = terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName)
}

// Connect checks the flags, and connects.
func (w *WriteFlags) Connect(access *cluster.Access) (*cluster.Cluster, error) {
	switch {
	case w.timeout < 0:
		return nil, terminal.Usage("With 0s it does not wait.", "--timeout must not be negative")
	case w.reveal && (w.dryRun.server || w.out.Format != "" || w.timeout == 0):
		return nil, terminal.Usage("Leave out --reveal, or --dry-run, -o and --timeout=0s.", "--reveal prints only the key, and waits for it")
	}
	return access.Connect()
}

func (w *WriteFlags) createOptions() []client.CreateOption {
	if w.dryRun.server {
		return []client.CreateOption{client.DryRunAll}
	}
	return nil
}

// Print prints an object: as a manifest for Git, or what was done with it.
func (w *WriteFlags) Print(object client.Object, done string) error {
	to := w.streams.Out
	if w.reveal {
		to = w.streams.ErrOut
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
func (w *WriteFlags) change(ctx context.Context, kube *cluster.Cluster, key *v1alpha1.ApiKey, done string, edit func(), options ...client.PatchOption) error {
	if w.dryRun.server {
		options = append(options, client.DryRunAll)
	}
	if err := kube.ChangeKey(ctx, key, edit, options...); err != nil {
		return fmt.Errorf("change ApiKey %s/%s: %w", key.Namespace, key.Name, err)
	}
	manifest := New(key.Name, "", "", DefaultOverlap)
	manifest.Namespace, manifest.Spec = key.Namespace, key.Spec
	if err := w.Print(manifest, done); err != nil {
		return err
	}
	return w.Finish(ctx, kube, key)
}

// DryRun reports whether nothing is to be written.
func (w *WriteFlags) DryRun() bool { return w.dryRun.server }

// Await waits for an object as long as --timeout says.
func (w *WriteFlags) Await(ctx context.Context, kube *cluster.Cluster, object client.Object, look func() cluster.Progress) error {
	return kube.Await(ctx, w.timeout, object, look)
}

// Finish waits until the operator has handled an ApiKey, and prints the key if it is asked for.
func (w *WriteFlags) Finish(ctx context.Context, kube *cluster.Cluster, key *v1alpha1.ApiKey) error {
	if w.dryRun.server {
		return nil
	}
	if err := w.Await(ctx, kube, key, func() cluster.Progress { return settled(key) }); err != nil {
		return err
	}
	if w.reveal {
		return reveal(ctx, w.streams, kube, key)
	}
	if secret := key.DeliverySecretName(); secret != "" && key.Spec.State != v1alpha1.ApiKeyDisabled && w.timeout > 0 && Delivered(key) == nil {
		fmt.Fprintf(w.streams.ErrOut, "The key is in Secret %s. Print it with: kubectl merchant keys reveal %s -n %s\n", secret, key.Name, key.Namespace)
	}
	return nil
}

// Create creates an object, or checks it in a dry run. It is read first, so that a missing right to read it, which is needed to wait
// for it, leaves nothing half done.
func (w *WriteFlags) Create(ctx context.Context, kube *cluster.Cluster, object client.Object) error {
	existing := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
	if err := kube.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read %s %s/%s: %w", object.GetObjectKind().GroupVersionKind().Kind, kube.Namespace, object.GetName(), err)
	}
	if err := createWith(ctx, kube, object, w.createOptions()...); err != nil {
		return err
	}
	return w.Print(object, "created")
}

// CheckCreate lets the API server check an object that is to be created.
func CheckCreate(ctx context.Context, kube *cluster.Cluster, object client.Object) error {
	return createWith(ctx, kube, object, client.DryRunAll)
}

func createWith(ctx context.Context, kube *cluster.Cluster, object client.Object, options ...client.CreateOption) error {
	err := kube.Create(ctx, object.DeepCopyObject().(client.Object), options...) //nolint:forcetypeassert // a copy is of the same type
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if apierrors.IsAlreadyExists(err) {
		return terminal.Hinted("Choose another name, or look at it with: kubectl merchant status -n "+kube.Namespace, "%s %s/%s already exists", kind, kube.Namespace, object.GetName())
	}
	if err != nil {
		return fmt.Errorf("create %s %s/%s: %w", kind, kube.Namespace, object.GetName(), err)
	}
	return nil
}
