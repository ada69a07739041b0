package main

import (
	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/internal/commandline"
	"github.com/merchant-operator/merchant-operator/internal/deadletters"
)

func deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List and resend webhook events that could not be delivered",
		Long: "An event becomes a dead letter after its last attempt, when its endpoint answers 410, or while its\n" +
			"endpoint is disabled. It is kept for 30 days.",
		Args: needCommand,
		RunE: commandline.PrintHelp,
	}
	cmd.AddCommand(listDeadLettersCommand(), resendDeadLettersCommand())
	return cmd
}

func listDeadLettersCommand() *cobra.Command {
	var options deadletters.ListOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters",
		Example: "  merchant-operator dead-letters list --merchant shops/acme-coffee",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			return deadletters.List(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.Merchant, "merchant", "", "list only dead letters of this merchant: NAMESPACE/NAME or id (mer_...); empty: all")
	flags.IntVar(&options.Limit, "limit", 100, "maximum number to list; 0: all")
	flags.StringVarP(&options.Output, "output", "o", "table", "output format: table or json")
	return cmd
}

func resendDeadLettersCommand() *cobra.Command {
	var options deadletters.ResendOptions
	cmd := &cobra.Command{
		Use:   "resend [EVENT...]",
		Short: "Send dead letters again",
		Long: "The events are due at once, with the same id and bytes and a new retry schedule. Those of a disabled\n" +
			"endpoint are not sent: repair the endpoint and change spec.webhook.resumeTrigger of its Merchant, or\n" +
			"add --resume.",
		Example: "  merchant-operator dead-letters resend evt_qrstuvwxyz23X7pL1vB8nR3tY6wZaa_ended\n" +
			"  merchant-operator dead-letters resend --merchant shops/acme-coffee --resume",
		RunE: func(cmd *cobra.Command, args []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			options.IDs = args
			return deadletters.Resend(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.Merchant, "merchant", "", "resend all dead letters of this merchant: NAMESPACE/NAME or id (mer_...)")
	flags.BoolVar(&options.All, "all", false, "resend the dead letters of all merchants")
	flags.BoolVar(&options.Resume, "resume", false, "enable the disabled endpoints of these dead letters first")
	return cmd
}
