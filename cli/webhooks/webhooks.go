package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/merchants"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
	"github.com/merchant-operator/merchant-operator/internal/deadletters"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Command returns kubectl merchant webhooks.
func Command(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{streams, access, now}
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Show the health of webhooks, list dead letters and send them again",
		Args:  terminal.NeedCommand,
		RunE:  commandline.PrintHelp,
	}
	cmd.AddCommand(c.statusCommand(), c.deadLettersCommand(), c.resendCommand())
	return cmd
}

func (c *commands) statusCommand() *cobra.Command {
	var allNamespaces bool
	cmd := &cobra.Command{
		Use:   "status [MERCHANT]",
		Short: "Show the health of the webhooks of merchants",
		Long:  "Show the health of the webhooks of merchants. The exit code is 3 if one is not healthy.",
		Example: "  kubectl merchant webhooks status -A\n" +
			"  kubectl merchant webhooks status acme-coffee -n shops",
		Args:              terminal.Arguments("[MERCHANT]"),
		ValidArgsFunction: c.access.CompleteMerchants,
	}
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "show the webhooks of all namespaces")
	out := terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if allNamespaces && len(args) > 0 {
			return terminal.Usage("Leave out -A, or the name.", "a name is in one namespace")
		}
		kube, err := c.access.Connect()
		if err != nil {
			return err
		}
		all, err := kube.Merchants(cmd.Context(), args, allNamespaces)
		if err != nil {
			return err
		}
		webhooks := []merchantWebhook{}
		for i := range all {
			if webhook := merchants.NewWebhook(&all[i]); webhook != nil {
				webhooks = append(webhooks, merchantWebhook{all[i].Namespace, all[i].Name, *webhook})
			}
		}
		if len(webhooks) == 0 && out.Format == "" {
			fmt.Fprintln(c.ErrOut, "No webhooks.")
			return nil
		}
		if err := out.Write(c.Out, webhooks, func(to io.Writer) error { return c.writeWebhooks(to, webhooks) }); err != nil {
			return err
		}
		if slices.ContainsFunc(webhooks, func(w merchantWebhook) bool { return w.Webhook.Healthy != nil && !w.Webhook.Healthy.Status }) {
			return &terminal.NegativeError{}
		}
		return nil
	}
	return cmd
}

// merchantWebhook is the endpoint of a merchant; -o json prints it.
type merchantWebhook struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Webhook   merchants.Webhook `json:"webhook"`
}

func (c *commands) writeWebhooks(to io.Writer, webhooks []merchantWebhook) error {
	table := terminal.NewTable(to)
	terminal.Row(table, "MERCHANT", "URL", "HEALTH", "LAST DELIVERY", "LAST FAILURE", "PENDING", "DEAD LETTERS")
	for _, w := range webhooks {
		delivery, failure := terminal.None, terminal.None
		if w.Webhook.LastDelivery != nil {
			delivery = terminal.Ago(&w.Webhook.LastDelivery.Time, c.now())
		}
		if last := w.Webhook.LastFailure; last != nil {
			failure = terminal.Ago(&last.Time, c.now()) + " (" + last.Reason + ")"
		}
		terminal.Row(table, w.Namespace+"/"+w.Name, w.Webhook.URL, w.Webhook.Health(), delivery, failure,
			strconv.FormatInt(w.Webhook.Pending, 10), strconv.FormatInt(w.Webhook.Dead, 10))
	}
	return table.Flush()
}

// redisFlag is the way to Redis.
type redisFlag struct{ url string }

func (f *redisFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "redis-url", "", "ask this Redis instead of a pod of the dispatcher; env: the one of $REDIS_URL, which keeps a password out of the process list")
}

// resolve returns the URL; empty: ask a pod.
func (f *redisFlag) resolve() (string, error) {
	url := f.url
	if url == "env" {
		if url = os.Getenv("REDIS_URL"); url == "" {
			return "", terminal.Usage("Set REDIS_URL, or leave out --redis-url.", "--redis-url is env, and REDIS_URL is empty")
		}
	}
	if url == "" {
		return "", nil
	}
	if err := redis.CheckURL(url); err != nil {
		return "", terminal.Usage("Without --redis-url a pod of the dispatcher is asked.", "%w", err)
	}
	return url, nil
}

const merchantHelp = "NAME in the namespace, NAMESPACE/NAME or id (mer_...)"

// qualified adds the namespace to the name of a Merchant.
func qualified(namespace, merchant string) string {
	if merchant == "" || strings.Contains(merchant, "/") || strings.HasPrefix(merchant, "mer_") {
		return merchant
	}
	return namespace + "/" + merchant
}

// checkQualified checks that the Merchant NAMESPACE/NAME exists. Without the right to read it, or with an id, nobody knows.
func checkQualified(ctx context.Context, kube *cluster.Cluster, merchant string) error {
	namespace, name, named := strings.Cut(merchant, "/")
	if !named {
		return nil
	}
	there := *kube
	there.Namespace = namespace
	_, err := there.Merchant(ctx, name)
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

func (c *commands) deadLettersCommand() *cobra.Command {
	var options deadletters.ListOptions
	var way redisFlag
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List events that could not be delivered",
		Long:  "List events that could not be delivered, through a pod of the dispatcher: it needs the right to exec into it.",
		Example: "  kubectl merchant webhooks dead-letters --merchant shops/acme-coffee\n" +
			"  kubectl merchant webhooks dead-letters --redis-url=env -o json",
		Args: terminal.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Merchant, "merchant", "", "list only those of this merchant: "+merchantHelp+"; empty: all")
	_ = cmd.RegisterFlagCompletionFunc("merchant", c.access.CompleteMerchantFlag) // fails only for an unknown flag
	flags.IntVar(&options.Limit, "limit", 100, "maximum number to list; 0: all")
	way.add(cmd)
	out := terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		remote, err := c.remote(&way)
		if err != nil {
			return err
		}
		options.Merchant, options.Output = qualified(remote.kube.Namespace, options.Merchant), deadletters.OutputJSON
		options.RedisURL = "redis://unused" // Validate wants one
		if err := options.Validate(); err != nil {
			return terminal.Usage(terminal.SeeHelp(cmd), "%w", err)
		}
		entries, err := remote.list(cmd.Context(), options)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			if err := checkQualified(cmd.Context(), remote.kube, options.Merchant); err != nil {
				return err
			}
		}
		if len(entries) == 0 && out.Format == "" {
			fmt.Fprintln(c.ErrOut, "No dead letters.")
			return nil
		}
		return out.Write(c.Out, entryList(entries), func(to io.Writer) error { return deadletters.WriteTable(to, entries) })
	}
	return cmd
}

// entryList is dead letters; -o name prints their ids.
type entryList []deadletters.Entry

// Names are the ids of the events.
func (l entryList) Names() (ids []string) {
	for _, entry := range l {
		ids = append(ids, entry.ID)
	}
	return ids
}

func (c *commands) resendCommand() *cobra.Command {
	var options deadletters.ResendOptions
	var way redisFlag
	cmd := &cobra.Command{
		Use:   "resend [EVENT...]",
		Short: "Send dead letters again",
		Long: "Send dead letters again, with the same ids and bytes, through a pod of the dispatcher: it needs the right to exec into it.\n\n" +
			"Those of a disabled endpoint are not sent: repair it, and add --resume.",
		Example: "  kubectl merchant webhooks resend evt_qrstuvwxyz23X7pL1vB8nR3tY6wZaa_ended\n" +
			"  kubectl merchant webhooks resend --merchant shops/acme-coffee --resume",
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Merchant, "merchant", "", "send all of this merchant: "+merchantHelp)
	_ = cmd.RegisterFlagCompletionFunc("merchant", c.access.CompleteMerchantFlag) // fails only for an unknown flag
	flags.BoolVar(&options.All, "all", false, "send those of all merchants")
	flags.BoolVar(&options.Resume, "resume", false, "enable the disabled endpoints of these dead letters first")
	way.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		remote, err := c.remote(&way)
		if err != nil {
			return err
		}
		options.IDs, options.Merchant, options.RedisURL = args, qualified(remote.kube.Namespace, options.Merchant), "redis://unused"
		if err := options.Validate(); err != nil {
			return terminal.Usage("List them with: kubectl merchant webhooks dead-letters", "%w", err)
		}
		if err := checkQualified(cmd.Context(), remote.kube, options.Merchant); err != nil {
			return err
		}
		return remote.resend(cmd.Context(), options, c.Out)
	}
	return cmd
}

// remote is where the dead letters are: in a Redis, which only a dispatcher's pod reaches unless a URL is given.
type remote struct {
	commands *commands
	kube     *cluster.Cluster
	url      string
}

func (c *commands) remote(way *redisFlag) (*remote, error) {
	url, err := way.resolve()
	if err != nil {
		return nil, err
	}
	kube, err := c.access.Connect()
	return &remote{c, kube, url}, err
}

func (r *remote) list(ctx context.Context, options deadletters.ListOptions) ([]deadletters.Entry, error) {
	if options.RedisURL = r.url; r.url != "" {
		return deadletters.Read(ctx, options)
	}
	var out bytes.Buffer
	args := []string{"dead-letters", "list", "--output=" + options.Output, "--limit=" + strconv.Itoa(options.Limit), "--merchant=" + options.Merchant}
	if err := r.commands.execInDispatcher(ctx, r.kube, &out, args); err != nil {
		return nil, err
	}
	var entries []deadletters.Entry
	if err := json.Unmarshal(out.Bytes(), &entries); err != nil {
		return nil, fmt.Errorf("read the answer of the dispatcher's pod: %w", err)
	}
	return entries, nil
}

func (r *remote) resend(ctx context.Context, options deadletters.ResendOptions, to io.Writer) error {
	if options.RedisURL = r.url; r.url != "" {
		return deadletters.Resend(ctx, options, to)
	}
	args := append([]string{"dead-letters", "resend", "--merchant=" + options.Merchant, "--all=" + strconv.FormatBool(options.All), "--resume=" + strconv.FormatBool(options.Resume)}, options.IDs...)
	return r.commands.execInDispatcher(ctx, r.kube, to, args)
}
