# Reads one file from the beginning to the end.
set $dir=/tmp
set $nthreads=1
set $iosize=1m
set $filesize=256m
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc
define process name=micro,instances=1 {
  thread name=micro,memsize=10m,instances=$nthreads {
    flowop read name=seqread,filesetname=bigfileset,iosize=$iosize
  }
}
run 60
