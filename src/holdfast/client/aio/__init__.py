"""What asyncio programs use: the same modules as `holdfast.client.sync`, with tasks that wait."""
