package explain

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

// AllowlistCommand returns kubectl merchant allowlist.
func AllowlistCommand(access *cluster.Access, streams genericiooptions.IOStreams) *cobra.Command {
	c := &commands{IOStreams: streams, access: access}
	cmd := &cobra.Command{
		Use:   "allowlist",
		Short: "Test addresses against the allowlist of a merchant",
		Args:  terminal.NeedCommand,
		RunE:  commandline.PrintHelp,
	}
	cmd.AddCommand(c.allowlistTestCommand())
	return cmd
}

func (c *commands) allowlistTestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test MERCHANT ADDRESS",
		Short: "Say whether a merchant's keys are accepted from an address",
		Long: "Say whether the allowlist of a merchant contains an address, with the code of the API, and which of its keys have a list of their own without it.\n\n" +
			"The exit code is 0 if the merchant's list has it, and with --key that of the key too; else 3.",
		Example: "  kubectl merchant allowlist test acme-coffee 203.0.113.7 -n shops\n" +
			"  kubectl merchant allowlist test acme-coffee 2001:db8::7 -n shops -o json\n" +
			"  kubectl merchant allowlist test acme-coffee 203.0.113.7 -n shops --key acme-till-1",
		Args:              terminal.Arguments("MERCHANT", "ADDRESS"),
		ValidArgsFunction: c.access.CompleteMerchants,
	}
	var keyName string
	cmd.Flags().StringVar(&keyName, "key", "", "name of the ApiKey whose own list must have the address, too; empty: none")
	_ = cmd.RegisterFlagCompletionFunc("key", func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) { // fails only for an unknown flag
		return c.access.CompleteKeys(cmd, nil, typed)
	})
	out := terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		address, err := parseAddress("ADDRESS", args[1])
		if err != nil {
			return err
		}
		if keyName != "" {
			if err := cluster.CheckName("ApiKey", keyName); err != nil {
				return err
			}
		}
		kube, err := c.access.Connect()
		if err != nil {
			return err
		}
		found, err := testAddress(cmd.Context(), kube, args[0], address, keyName)
		if err != nil {
			return err
		}
		if err := out.Write(c.Out, found, found.writeText); err != nil {
			return err
		}
		if !found.Allowed || slices.Contains(found.RefusedKeys, keyName) {
			return &terminal.NegativeError{}
		}
		return nil
	}
	return cmd
}

// testAddress tests an address against the allowlists of a merchant and of its keys. An ApiKey that is named must be one of the merchant.
func testAddress(ctx context.Context, kube *cluster.Cluster, name string, address netip.Addr, key string) (found addressTest, err error) {
	merchant, err := kube.Merchant(ctx, name)
	if err != nil {
		return found, err
	}
	list, err := allowlist.Parse(merchant.Spec.IPAllowlist)
	if err != nil {
		return found, fmt.Errorf("read spec.ipAllowlist: %w", err)
	}
	found = addressTest{Address: address.String(), Allowed: list.Allows(address), Mode: merchant.Spec.IPAllowlistMode, any: len(list) == 0}
	for _, block := range list {
		if block.Contains(address) {
			found.Entries = append(found.Entries, block)
		}
	}
	found.RefusedKeys, err = refusedKeys(ctx, kube, merchant, address, key)
	return found, err
}

// addressTest is the result of a test; -o json prints it.
type addressTest struct {
	Address string `json:"address"`
	Allowed bool   `json:"allowed"`
	// Mode says whether the API refuses an address that is not allowed.
	Mode v1alpha1.IPAllowlistMode `json:"mode"`
	// Entries are the entries of the allowlist that contain the address.
	Entries []netip.Prefix `json:"entries,omitempty"`
	// RefusedKeys are the ApiKeys of the merchant whose own list does not have the address.
	RefusedKeys []string `json:"refusedKeys,omitempty"`

	any bool // the allowlist is empty
}

// refusedKeys names the ApiKeys of a merchant whose own list does not have an address. An ApiKey that is named must be one of the merchant.
func refusedKeys(ctx context.Context, kube *cluster.Cluster, merchant *v1alpha1.Merchant, address netip.Addr, named string) (refused []string, err error) {
	keys, err := kube.MerchantKeys(ctx, merchant)
	if err != nil {
		return nil, err
	}
	known := named == ""
	for _, key := range keys {
		known = known || key.Name == named
		own, err := allowlist.Parse(key.Spec.IPAllowlist)
		if err != nil {
			return nil, fmt.Errorf("read spec.ipAllowlist of ApiKey %s: %w", key.Name, err)
		}
		if !own.Allows(address) {
			refused = append(refused, key.Name)
		}
	}
	if !known {
		return nil, terminal.Usage("Name one of the merchant's: kubectl merchant status "+merchant.Name+" -n "+merchant.Namespace, "%s has no ApiKey %s", merchant.Name, named)
	}
	return refused, nil
}

func (a addressTest) writeText(to io.Writer) error {
	switch {
	case a.any:
		fmt.Fprintf(to, "%s is allowed: the allowlist is empty, so any address is\n", a.Address)
	case a.Allowed:
		fmt.Fprintf(to, "%s is allowed by %s\n", a.Address, a.Entries[0])
	case a.Mode == v1alpha1.IPAllowlistReport:
		fmt.Fprintf(to, "%s is not on the allowlist; it is accepted only because spec.ipAllowlistMode is Report\n", a.Address)
	default:
		fmt.Fprintf(to, "%s is not on the allowlist\n", a.Address)
	}
	for _, name := range a.RefusedKeys {
		line := "%s is not on the allowlist of ApiKey %s\n"
		if a.Mode == v1alpha1.IPAllowlistReport {
			line = "%s is not on the allowlist of ApiKey %s; it is accepted only because spec.ipAllowlistMode of the Merchant is Report\n"
		}
		fmt.Fprintf(to, line, a.Address, name)
	}
	return nil
}
